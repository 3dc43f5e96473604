// Memory of tensors: reference-counted blocks from a pool of size classes.
//
// A fresh block costs a page fault for every 4 KiB; a pooled one costs a few nanoseconds. Every
// function here runs under the GIL, so counts and lists are plain.
#pragma once

#include <cstdint>

namespace mg {

struct Buffer {
    char* data;
    int64_t bytes;              // usable bytes at data
    int64_t references;         // tensors and exports that hold it
    int64_t version;            // in-place writes so far
    void (*drop)(void* owner);  // for foreign memory: releases the owner
    void* owner;
    Buffer* next;  // in a free list
    int32_t size_class;
    int32_t device;  // 0: CPU, 1 + i: cuda:i
};
static_assert(sizeof(Buffer) == 64, "a header of one cache line keeps data aligned");

Buffer* allocate(int64_t bytes);  // 64-byte aligned, not initialized; null if out of memory
Buffer* adopt(void* data, int64_t bytes, int device, void* owner, void (*drop)(void*));
void release(Buffer* buffer);  // drops one reference

int64_t bytes_in_use();  // held by live buffers of our own
int64_t bytes_cached();  // held by free lists
void empty_cache();

}  // namespace mg
