// The places of elements of given ranks in rows, found without sorting them.
//
// An element is compared by a key, an unsigned integer in the order of the numbers, where -0 is 0. The candidates for a
// rank are counted by the leading digits of their keys, and the ones with the right digits stay. If another thread
// writes to the row meanwhile, the places may be any in the row.
#include "../runtime/pool.hpp"
#include "isa.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 13;  // elements: about ten microseconds of work
constexpr int64_t FEW = 64;         // candidates that are compared with each other
constexpr int64_t MANY = 1 << 12;   // candidates for which many digits are counted at once

template <class T, class Key = Word<T>>
MG_INLINE Key key_of(T x) {
    constexpr Key SIGN = Key(1) << (8 * sizeof(Key) - 1);
    Key bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits = bits & SIGN ? Key(~bits) : Key(bits | SIGN);
    return x == 0 ? SIGN : bits;
}

// The key of a rank among few: the one with at most `rank` smaller keys and more than `rank` that are not larger
template <class Key>
Key among_few(int64_t count, const Key* keys, int64_t rank) {
    for (int64_t i = 0; i + 1 < count; i++) {
        uint32_t less = 0, equal = 0;
        for (int64_t j = 0; j < count; j++) {
            less += keys[j] < keys[i];
            equal += keys[j] == keys[i];
        }
        if (less <= rank && rank < less + equal) return keys[i];
    }
    return keys[count - 1];
}

// The key of a rank among all; the candidates in `keys` are overwritten.
template <class Key>
Key among(int64_t count, Key* keys, int64_t rank) {
    int64_t found[1 << 11];
    int rest = 8 * sizeof(Key);  // bits that may differ among the candidates
    while (count > FEW && rest) {
        int bits = count < MANY ? 8 : 11;
        if (bits > rest) bits = rest;
        rest -= bits;
        const Key mask = (Key(1) << bits) - 1;
        for (Key digit = 0; digit <= mask; digit++) found[digit] = 0;
        for (int64_t i = 0; i < count; i++) found[(keys[i] >> rest) & mask]++;
        Key digit = 0;
        while (rank >= found[digit]) rank -= found[digit++];
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++) {
            const Key key = keys[i];
            keys[kept] = key;
            kept += ((key >> rest) & mask) == digit;
        }
        count = kept;
    }
    return count > FEW ? keys[0] : among_few(count, keys, rank);
}

// One key of a row, the number of smaller and of equal ones, and the smallest larger one
template <class T, class Key = Word<T>>
struct Place {
    Key key, next;
    int64_t less, equal;

    void count(int64_t n, const T* x) {
        constexpr int64_t BLOCK = 1 << 16;  // elements whose counts fit in lanes as wide as the keys
        const Key none = ~Key(0), middle = key;
        Key smallest = none;
        less = equal = 0;
        for (int64_t first = 0; first < n; first += BLOCK) {
            const int64_t end = n - first < BLOCK ? n : first + BLOCK;
            Key smaller = 0, same = 0;
            for (int64_t i = first; i < end; i++) {
                const Key other = key_of(x[i]);
                smaller += Key(other < middle);
                same += Key(other == middle);
                const Key larger = other > middle ? other : none;
                smallest = larger < smallest ? larger : smallest;
            }
            less += int64_t(smaller), equal += int64_t(same);
        }
        next = smallest;
    }
};

// index[row, j] = the place of the element of rank ranks[j] in the stable order of x[row, n]; in a row with NaN, the
// place of the last NaN. Equal and consecutive ranks share what was found.
// keys is scratch of x's size.
MG_KERNEL(ranked[FLOATS])
template <class T>
void ranked(int64_t rows, int64_t n, const T* all, int64_t m, const int64_t* ranks, Word<T>* all_keys, int64_t* index) {
    parallel_each(rows, 1 + GRAIN / (1 + n), [=](int64_t row) {
        const T* x = all + row * n;
        Word<T>* keys = all_keys + row * n;
        int64_t* to = index + row * m;
        bool broken = false;
        for (int64_t i = 0; i < n; i++) broken |= x[i] != x[i];
        if (broken) {
            int64_t last = n - 1;
            while (last && x[last] == x[last]) last--;
            for (int64_t j = 0; j < m; j++) to[j] = last;
            return;
        }
        Place<T> place{0, 0, 0, 0};
        for (int64_t j = 0; j < m; j++) {
            if (ranks[j] < place.less || ranks[j] >= place.less + place.equal) {
                if (place.equal && ranks[j] == place.less + place.equal) {
                    place.key = place.next;
                } else {
                    for (int64_t i = 0; i < n; i++) keys[i] = key_of(x[i]);
                    place.key = among(n, keys, ranks[j]);
                }
                place.count(n, x);
            }
            int64_t at = 0;
            for (int64_t before = ranks[j] - place.less; at < n - 1; at++)
                if (key_of(x[at]) == place.key && before-- == 0) break;
            to[j] = at;
        }
    });
}

}  // namespace

void fill_order(Kernels& k) { MG_PUT_ORDER }

}  // namespace mg::MG_ISA
