// Memory of tensors: reference-counted blocks from a pool of size classes.
//
// A fresh block costs a page fault for every 4 KiB; a pooled one costs a few nanoseconds. Every
// function here runs under the GIL, so counts and lists are plain.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mg {

struct Buffer {
    char* data;
    int64_t bytes;              // usable bytes at data
    int64_t references;         // tensors and exports that hold it
    int64_t version;            // in-place writes so far
    void (*drop)(void* owner);  // for foreign memory: releases the owner
    void* owner;                // for our own: its arena, if it has one; for that of an arena, see buffer.cpp
    Buffer* next;               // in a free list
    int32_t size_class;         // negative for foreign memory
    int32_t device;             // 0: CPU, 1 + i: cuda:i
};
static_assert(sizeof(Buffer) == 64, "a header of one cache line keeps data aligned");

// 64-byte aligned, not initialized; null if out of memory. `once`: its values are not computed by kernels, so that a
// recorded step may not use the memory for anything else.
Buffer* allocate(int64_t bytes, bool once = false);
Buffer* adopt(void* data, int64_t bytes, int device, void* owner, void (*drop)(void*));
// Memory of a device, which `fresh(bytes, device)` adopts.
Buffer* allocate_on(int device, int64_t bytes, Buffer* (*fresh)(int64_t bytes, int device));
void release(Buffer* buffer);  // drops one reference

// The memory of a recorded step, whose kernels run again at the same addresses. While an arena is open, all allocations
// of the thread come from it, on every device, and what the thread frees is used again within the arena only. It also
// keeps the memory of others that the kernels use, when that is released. One arena can be open at a time.
struct Arena;
Arena* open_arena();                          // null if one is open
void pause_arena(Arena* arena, bool paused);  // while it is paused, the thread uses the pool
void close_arena(Arena* arena, const uintptr_t* addresses, size_t count);  // that the kernels use, in ascending order
void free_arena(Arena* arena);
size_t blocks_of(const Arena* arena);  // how many blocks it has allocated
Buffer* block_of(const Arena* arena, size_t i);
// Where a buffer has the owner of its memory that `drop` lets go of; null if it has none.
void** owner_place(Buffer* buffer, void (*drop)(void*));

int64_t bytes_in_use();  // held by live buffers of our own
int64_t bytes_cached();  // held by free lists
void empty_cache();

}  // namespace mg
