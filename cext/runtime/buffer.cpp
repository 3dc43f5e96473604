#include "buffer.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "platform.hpp"

// AddressSanitizer sees only whole blocks: it has to be told which bytes of a block are in use.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define PERMIT(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define FORBID(address, bytes)
#define PERMIT(address, bytes)
#endif

namespace mg {
namespace {

// Four classes per octave: at most a quarter of a small block is wasted. Classes start at 64 bytes.
constexpr int CLASSES = 4 * 58;
// With MINIGRAD_CACHE_LIMIT=0 every block goes back to the C library, whose own checks and poisoning then see it.
const char* const LIMIT = std::getenv("MINIGRAD_CACHE_LIMIT");
const int64_t CACHE_LIMIT = LIMIT ? std::atoll(LIMIT) : int64_t{1} << 30;

Buffer* free_lists[CLASSES];
int64_t in_use = 0, cached = 0;
Arena* arenas = nullptr;      // all of them
Arena* opened = nullptr;      // the open one, unless it is paused
bool being_recorded = false;  // whether one is open or paused

int size_class(int64_t bytes) {
    const int64_t lines = bytes <= 64 ? 1 : (bytes + 63) / 64;
    if (lines <= 4) return static_cast<int>(lines - 1);
    const int octave = 63 - __builtin_clzll(static_cast<unsigned long long>(lines - 1));
    return static_cast<int>(4 * (octave - 1) + ((lines - 1) >> (octave - 2)) - 4);
}

int64_t class_bytes(int size_class) {
    if (size_class < 4) return 64 * (size_class + 1);
    const int octave = size_class / 4 + 1;
    return 64 * ((int64_t{4} + size_class % 4 + 1) << (octave - 2));
}

// ---- pieces of regions ----------------------------------------------------------------------------------------------

// Blocks of MEDIUM bytes or more are cut from regions, and joined with their free neighbours when nobody holds them any
// longer, so that what arrays of one size have freed serves those of any other. Each block follows the one before it,
// whose address is its `next`; the last of a region is an END without data. The `version` of a free piece is how many
// of its bytes have been in use since the system gave them.
constexpr int64_t MEDIUM = int64_t{1} << 15, REGION = int64_t{1} << 25;
constexpr int64_t HUGE_PAGE = int64_t{1} << 21, LARGEST_PAGE = int64_t{1} << 16;
constexpr int64_t HEADER = sizeof(Buffer);
constexpr int FREE = -3, END = -4;  // size classes
const int FIRST_CUT = CACHE_LIMIT ? size_class(MEDIUM) : CLASSES;
auto& pieces = *new std::set<std::pair<int64_t, Buffer*>>;  // the free ones, by size; never destroyed

int64_t multiple(int64_t bytes, int64_t of) { return (bytes + of - 1) / of * of; }
Buffer* after(const Buffer* piece) { return reinterpret_cast<Buffer*>(piece->data + piece->bytes); }

Buffer* put_header(void* memory, int64_t bytes, int size_class, Buffer* before = nullptr) {
    PERMIT(memory, HEADER);
    auto* buffer = static_cast<Buffer*>(memory);
    *buffer = Buffer{static_cast<char*>(memory) + HEADER, bytes, 0, 0, nullptr, nullptr, before, size_class, 0};
    return buffer;
}

// Makes a free piece one that `cut` finds. Where even that takes more memory than there is, it is found again when it
// is joined with a neighbour.
void offer(Buffer* piece) {
    try {
        pieces.emplace(piece->bytes, piece);
    } catch (const std::bad_alloc&) {
    }
}

// A region of one free piece; null if out of memory. Huge pages save page faults; the END must not make one resident.
Buffer* new_region(int64_t bytes) {
    const int64_t size = std::max(REGION, multiple(bytes + 2 * HEADER, HUGE_PAGE));
    void* memory = allocate_aligned(HUGE_PAGE, static_cast<size_t>(size), static_cast<size_t>(size - HUGE_PAGE));
    if (!memory) return nullptr;
    Buffer* piece = put_header(memory, size - 2 * HEADER, FREE);
    put_header(after(piece), 0, END, piece);
    return piece;
}

// The smallest free piece of at least so many bytes, without what it has beyond them
Buffer* cut(int64_t bytes) {
    bytes = multiple(bytes, 64);
    const auto found = pieces.lower_bound({bytes, nullptr});
    Buffer* piece = found != pieces.end() ? found->second : new_region(bytes);
    if (!piece) return nullptr;
    if (found != pieces.end()) pieces.erase(found);
    const int64_t rest = piece->bytes - bytes - HEADER;
    cached -= piece->version;
    if (rest >= MEDIUM) {
        Buffer* last = after(piece);
        piece->bytes = bytes;
        last->next = put_header(after(piece), rest, FREE, piece);
        cached += last->next->version = std::max<int64_t>(piece->version - bytes - HEADER, 0);
        offer(last->next);
    }
    return piece;
}

// Gives the memory of a free piece back to the system.
void discard(Buffer* piece) {
    cached -= piece->version;
    piece->version = 0;
    if (!piece->next && after(piece)->size_class == END) {
        pieces.erase({piece->bytes, piece});
        PERMIT(piece, piece->bytes + 2 * HEADER);
        return free_aligned(piece);
    }
    const auto start = multiple(reinterpret_cast<int64_t>(piece->data), LARGEST_PAGE);
    const auto end = reinterpret_cast<int64_t>(after(piece)) / LARGEST_PAGE * LARGEST_PAGE;
    if (end > start) discard_pages(reinterpret_cast<void*>(start), static_cast<size_t>(end - start));
}

void join(Buffer* piece) {
    cached += piece->version = piece->bytes;
    const auto absorb = [](Buffer* first, Buffer* second) {
        first->bytes += HEADER + second->bytes;
        first->version += second->version;
        return first;
    };
    Buffer *last = after(piece), *before = piece->next;
    if (last->size_class == FREE) {
        pieces.erase({last->bytes, last});
        absorb(piece, last);
    }
    if (before && before->size_class == FREE) {
        pieces.erase({before->bytes, before});
        piece = absorb(before, piece);
    }
    piece->size_class = FREE;
    after(piece)->next = piece;
    offer(piece);
    FORBID(piece->data, piece->bytes);
    if (cached > CACHE_LIMIT) discard(piece);
}

// ---- foreign memory ------------------------------------------------------------------------------------------------

// The owner of foreign memory may hold another buffer, whose release frees a further owner, and so on. Beyond a certain
// depth, buffers are put into a list for the outermost call of the thread, so that a long chain is not freed
// recursively.
constexpr int DEEP = 30;
Buffer* unused = nullptr;
thread_local int depth = 0;

void drop(Buffer* buffer) {
    if (buffer->drop) buffer->drop(buffer->owner);
    std::free(buffer);
}

// Frees foreign memory or a piece.
__attribute__((noinline)) void give_back(Buffer* buffer) {
    if (buffer->size_class >= 0) {
        in_use -= buffer->bytes;
        return join(buffer);
    }
    if (depth == DEEP) {
        buffer->next = unused;
        unused = buffer;
        return;
    }
    depth++;
    drop(buffer);
    while (depth == 1 && unused) {
        buffer = unused;
        unused = buffer->next;
        drop(buffer);
    }
    depth--;
}

void fixed(void*) {}  // the `drop` of a block of an arena that is not used again

}  // namespace

// Whether one of the addresses, in ascending order, lies in a buffer.
inline bool any_within(const std::vector<uintptr_t>& addresses, const Buffer& buffer) {
    const auto start = reinterpret_cast<uintptr_t>(buffer.data);
    const auto found = std::lower_bound(addresses.begin(), addresses.end(), start);
    return found != addresses.end() && *found <= start + static_cast<uintptr_t>(buffer.bytes);
}

struct Arena {
    Arena* next;
    std::thread::id thread = std::this_thread::get_id();
    bool recording = true;
    std::vector<Buffer*> blocks;  // all of its own
    std::map<std::pair<int, int>, std::vector<Buffer*>>
        unused;                        // those that may be allocated again, by device and class
    std::vector<Buffer*> kept;         // others' memory that was released
    std::vector<uintptr_t> addresses;  // used by the kernels, in ascending order

    bool uses(const Buffer& buffer) const { return recording || any_within(addresses, buffer); }
};

namespace {

// The addresses that the kernels of all arenas use, in ascending order, and some of arenas that are gone.
std::vector<uintptr_t> used;

void add_addresses(const std::vector<uintptr_t>& more) {
    std::vector<uintptr_t> both(used.size() + more.size());
    std::merge(used.begin(), used.end(), more.begin(), more.end(), both.begin());
    used.swap(both);
}

void forget_addresses() {
    size_t count = 0;
    for (const Arena* arena = arenas; arena; arena = arena->next) count += arena->addresses.size();
    if (used.size() < 2 * count) return;
    used.clear();
    for (const Arena* arena = arenas; arena; arena = arena->next) add_addresses(arena->addresses);
}

bool is_open(const Arena* arena) { return arena && arena->thread == std::this_thread::get_id(); }

// The fields of a buffer of device memory that its arena replaces, and its size class.
struct Adopted {
    Arena* arena;
    void* owner;
    void (*drop)(void*);
    int size_class;
};
constexpr int FOREIGN = -1, IN_ARENA = -2;  // size classes of memory that is not ours, and of an Adopted buffer

// Whether an arena keeps a block that nobody holds any longer.
__attribute__((noinline)) bool keep(Buffer* buffer) {
    Arena* owner = nullptr;
    int k = buffer->size_class;
    if (k >= 0) {
        owner = static_cast<Arena*>(buffer->owner);
    } else if (k == IN_ARENA) {
        const auto* adopted = static_cast<const Adopted*>(buffer->owner);
        owner = adopted->arena;
        k = adopted->size_class;
    }
    if (owner) {
        if (owner == opened && buffer->drop != fixed) owner->unused[{buffer->device, k}].push_back(buffer);
        return true;
    }
    if (!being_recorded && !any_within(used, *buffer)) return false;
    for (Arena* arena = arenas; arena; arena = arena->next)
        if (arena->uses(*buffer)) {
            buffer->references = 1;
            arena->kept.push_back(buffer);
            return true;
        }
    return false;
}

}  // namespace

Arena* open_arena() {
    if (being_recorded) return nullptr;
    being_recorded = true;
    auto* arena = new Arena;
    arena->next = arenas;
    return opened = arenas = arena;
}

void pause_arena(Arena* arena, bool paused) { opened = paused ? nullptr : arena; }

void close_arena(Arena* arena, const uintptr_t* addresses, size_t count) {
    opened = nullptr;
    arena->recording = being_recorded = false;
    arena->addresses.assign(addresses, addresses + count);
    add_addresses(arena->addresses);
    std::vector<Buffer*> released;
    released.swap(arena->kept);
    for (Buffer* buffer : released) release(buffer);
}

size_t blocks_of(const Arena* arena) { return arena->blocks.size(); }
Buffer* block_of(const Arena* arena, size_t i) { return arena->blocks[i]; }

void** owner_place(Buffer* buffer, void (*drop)(void*)) {
    if (buffer->size_class == IN_ARENA) {
        auto* adopted = static_cast<Adopted*>(buffer->owner);
        return adopted->drop == drop ? &adopted->owner : nullptr;
    }
    return buffer->drop == drop ? &buffer->owner : nullptr;
}

void free_arena(Arena* arena) {
    if (arena->recording) being_recorded = false;
    if (opened == arena) opened = nullptr;
    Arena** link = &arenas;
    while (*link != arena) link = &(*link)->next;
    *link = arena->next;
    forget_addresses();
    for (Buffer* buffer : arena->blocks) {
        if (buffer->size_class == IN_ARENA) {
            const auto* adopted = static_cast<const Adopted*>(buffer->owner);
            buffer->drop = adopted->drop;
            buffer->owner = adopted->owner;
            buffer->size_class = FOREIGN;
            delete adopted;
        } else {
            buffer->drop = nullptr;
            buffer->owner = nullptr;
        }
        if (buffer->references > 0) continue;
        buffer->references = 1;
        release(buffer);
    }
    for (Buffer* buffer : arena->kept) release(buffer);
    delete arena;
}

namespace {

// A block that no list has; null if out of memory
__attribute__((noinline)) Buffer* fresh_block(int64_t bytes, int k) {
    if (k >= FIRST_CUT) {
        Buffer* piece = cut(bytes);
        if (piece) piece->size_class = k;
        return piece;
    }
    void* memory = allocate_aligned(64, static_cast<size_t>(class_bytes(k) + HEADER));
    return memory ? put_header(memory, class_bytes(k), k) : nullptr;
}

inline Buffer* from_pool(int64_t bytes, int k) {
    Buffer* buffer = free_lists[k];
    if (buffer) {
        free_lists[k] = buffer->next;
        cached -= buffer->bytes;
    } else {
        buffer = fresh_block(bytes, k);
        if (!buffer) {
            empty_cache();
            buffer = fresh_block(bytes, k);
            if (!buffer) return nullptr;
        }
    }
    buffer->references = 1;
    buffer->version = 0;
    in_use += buffer->bytes;
    FORBID(buffer->data, buffer->bytes);
    PERMIT(buffer->data, bytes);
    return buffer;
}

// A block that the thread has freed since it opened the arena, or null.
Buffer* freed(Arena* arena, int device, int k) {
    auto& blocks = arena->unused[{device, k}];
    if (blocks.empty()) return nullptr;
    Buffer* buffer = blocks.back();
    blocks.pop_back();
    buffer->references = 1;
    buffer->version = 0;
    return buffer;
}

__attribute__((noinline)) Buffer* from_arena(Arena* arena, int k, bool once) {
    Buffer* buffer = once ? nullptr : freed(arena, 0, k);
    if (buffer) return buffer;
    buffer = from_pool(class_bytes(k), k);
    if (!buffer) return nullptr;
    buffer->owner = arena;
    buffer->drop = once ? fixed : nullptr;
    arena->blocks.push_back(buffer);
    return buffer;
}

}  // namespace

Buffer* allocate(int64_t bytes, bool once) {
    if (bytes > (int64_t{1} << 60)) return nullptr;
    const int k = size_class(bytes);
    return is_open(opened) ? from_arena(opened, k, once) : from_pool(bytes, k);
}

Buffer* adopt(void* data, int64_t bytes, int device, void* owner, void (*drop)(void*)) {
    Buffer* buffer = static_cast<Buffer*>(std::malloc(sizeof(Buffer)));
    if (buffer) *buffer = Buffer{static_cast<char*>(data), bytes, 1, 0, drop, owner, nullptr, FOREIGN, device};
    return buffer;
}

Buffer* allocate_on(int device, int64_t bytes, Buffer* (*fresh)(int64_t bytes, int device)) {
    Arena* arena = opened;
    if (!is_open(arena)) return fresh(bytes, device);
    const int k = size_class(bytes);
    if (Buffer* buffer = freed(arena, device, k)) return buffer;
    Buffer* buffer = fresh(class_bytes(k), device);
    if (!buffer) return nullptr;
    buffer->owner = new Adopted{arena, buffer->owner, buffer->drop, k};
    buffer->drop = nullptr;
    buffer->size_class = IN_ARENA;
    arena->blocks.push_back(buffer);
    return buffer;
}

void release(Buffer* buffer) {
    if (--buffer->references > 0) return;
    if (arenas && keep(buffer)) return;
    if (static_cast<unsigned>(buffer->size_class) >= static_cast<unsigned>(FIRST_CUT)) return give_back(buffer);
    in_use -= buffer->bytes;
    if (cached + buffer->bytes > CACHE_LIMIT) {
        PERMIT(buffer->data, buffer->bytes);
        free_aligned(buffer);
        return;
    }
    cached += buffer->bytes;
    FORBID(buffer->data, buffer->bytes);
    buffer->next = free_lists[buffer->size_class];
    free_lists[buffer->size_class] = buffer;
}

int64_t bytes_in_use() { return in_use; }
int64_t bytes_cached() { return cached; }

void empty_cache() {
    for (Buffer*& list : free_lists) {
        while (list) {
            Buffer* buffer = list;
            list = buffer->next;
            cached -= buffer->bytes;
            PERMIT(buffer->data, buffer->bytes);
            free_aligned(buffer);
        }
    }
    for (auto next = pieces.begin(); next != pieces.end();)
        discard((next++)->second);  // discarding may erase the piece
}

}  // namespace mg
