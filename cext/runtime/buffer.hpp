// Memory of tensors: reference-counted blocks from a pool, by size classes or cut from larger regions.
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
    void* owner;                // holds foreign memory; otherwise the arena or null, or see Adopted in buffer.cpp
    Buffer* next;               // in a free list; in a region the block before
    int32_t size_class;         // negative for foreign memory
    int32_t device;             // 0: CPU, 1 + i: cuda:i
};
static_assert(sizeof(Buffer) == 64, "a header of one cache line keeps data aligned");

// 64-byte aligned, not initialized; null if out of memory. `once`: no kernel computes its values, so a captured step
// must not use the memory for anything else.
Buffer* allocate(int64_t bytes, bool once = false);
Buffer* adopt(void* data, int64_t bytes, int device, void* owner, void (*drop)(void*));
// Memory of a device, which `fresh(bytes, device)` adopts.
Buffer* allocate_on(int device, int64_t bytes, Buffer* (*fresh)(int64_t bytes, int device));
void release(Buffer* buffer);  // drops one reference

// The memory of a captured step, whose kernels run again at the same addresses. While an arena is open, it serves all
// allocations of the thread, on every device, and memory that the thread frees is used again only within the arena. An
// arena also keeps other memory that the kernels use when its last holder releases it. One arena can be open at a time.
struct Arena;
Arena* open_arena();                          // null if one is open
void pause_arena(Arena* arena, bool paused);  // while it is paused, the thread uses the pool
void close_arena(Arena* arena, const uintptr_t* addresses, size_t count);  // addresses that kernels use, ascending
void free_arena(Arena* arena);
size_t blocks_of(const Arena* arena);  // how many blocks it has allocated
Buffer* block_of(const Arena* arena, size_t i);
// The place of the pointer to the owner that `drop` lets go of; null if the buffer has no such owner.
void** owner_place(Buffer* buffer, void (*drop)(void*));

int64_t bytes_in_use();  // held by live buffers of our own
int64_t bytes_cached();  // held by free lists
void empty_cache();

}  // namespace mg
