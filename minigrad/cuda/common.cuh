// What every module begins with. T is the dtype of a module. Behind this text stand, written by `launch.py`, the numbers
// of dtypes and operations, which the CPU's kernels use too.
typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned char Bool;  // a byte, 0 or 1
typedef ELEMENT T;

// for (int64 i : the elements of this thread, of n in all): any grid covers any n
#define FOR_EACH(i, n)                                                                               \
    for (int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x, step_ = (int64)gridDim.x * blockDim.x; i < (n); \
         i += step_)

template <class T>
struct Traits {  // integers are added and multiplied as unsigned ones, whose overflow is defined
    typedef T Wrapping;
    typedef double Wide;
    static const bool floating = true;
};
template <>
struct Traits<int> {
    typedef unsigned Wrapping;
    typedef unsigned Wide;
    static const bool floating = false;
};
template <>
struct Traits<int64> {
    typedef uint64 Wrapping;
    typedef uint64 Wide;
    static const bool floating = false;
};
template <>
struct Traits<Bool> {
    typedef Bool Wrapping;
    typedef Bool Wide;
    static const bool floating = false;
};

// Lengths, or strides in bytes, of an array of at most eight axes; axes that it lacks come first, with length 1.
struct Extent {
    int64 n[8];
};
struct Stride {
    int64 n[8];
};

// Where an element lies whose number in row-major order is i
__device__ inline int64 offset(int64 i, const Extent& shape, const Stride& step) {
    int64 at = 0;
    for (int d = 7; i > 0; d--) {
        at += i % shape.n[d] * step.n[d];
        i /= shape.n[d];
    }
    return at;
}
