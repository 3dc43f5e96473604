from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libcpp.vector cimport vector

from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.shapes cimport MAX_NDIM

# A backward function sends the gradient of each input that needs one: node.send(i, ...) if node.needs(i).
ctypedef int (*Backward)(Node node, Array g) except -1

cdef struct Slot:
    PyObject* edge      # owned: the Node that made the input; NULL: no gradient wanted
    PyObject* value     # owned: the input itself, where backward needs it; else NULL
    int output          # its number among the outputs of that node

cdef extern from *:
    """
    #include <utility>
    // A node in a backward pass. The pass visits its nodes in descending order.
    struct Visit {
        int64_t sequence;
        PyObject* node;         // owned
        PyObject* gradient;     // owned: what has arrived so far; a list if the node has several outputs; NULL: nothing
        bool wanted;            // whether the gradient is wanted
        bool exclusive;         // whether nobody else holds the gradient: it may be written in place
        bool end;               // whether the pass ends here and leaves the gradient to another one
        void swap_gradients(Visit& other) {
            std::swap(gradient, other.gradient);
            std::swap(exclusive, other.exclusive);
        }
        bool operator<(const Visit& other) const {
            return sequence != other.sequence ? sequence < other.sequence : node < other.node;
        }
    };
    """
    cdef cppclass Visit:
        int64_t sequence
        PyObject* node
        PyObject* gradient
        bint wanted, exclusive, end
        void swap_gradients(Visit& other)

cdef class Op:
    cdef readonly str name
    cdef readonly tuple inputs, outputs     # -> tuple[str, ...]
    cdef readonly str forward, backward, source     # the equation, the derivative and their paper, as text
    cdef Backward differentiate     # the backward function
    cdef Backward composition       # replaces `differentiate` in a recorded pass, see ops/functions.fused
    cdef int fused                  # the number of the derivative's kernel, see ops/functions.fused
    cdef int[3] reads               # what the gradient of input k reads: bit 1 << i for input i, OUTPUT for y

cdef enum:
    OUTPUT = 8          # the bit of the output in `Op.reads`, after those of three inputs

cdef class Node:
    cdef Op op
    cdef int64_t sequence           # when it was recorded, see `new_node`; negative for a leaf
    cdef int inputs, outputs        # how many there are
    cdef Slot* slots
    cdef Slot[3] few                # the slots of a node with three inputs or fewer
    cdef Array kept                 # the output, where backward needs it: without its node, to avoid a cycle
    cdef object extra               # whatever else backward needs
    cdef int64_t versions           # the sum of the versions of all saved tensors
    cdef bint freed                 # whether a pass has dropped its edges and what it saved
    cdef int code, ndim, device     # the layout of the output
    cdef int64_t[MAX_NDIM] extent
    cdef list layouts               # (shape, dtype) of each output, if there are several
    cdef uint64_t found_by          # the backward pass that collected the node last,
    cdef size_t place               # and its place there, see Pass.visit_of
    cdef int passes                 # the number of running passes that have collected it and not yet visited it
    cdef PyObject* leaf             # the leaf of a leaf's node, borrowed
    cdef list hooks
    cdef str where                  # the source line, if source lines are recorded
    cdef object scope               # the module call it was recorded in, see `enter`

    cdef void drop(self) noexcept
    cdef int reserve(self, int inputs) except -1
    cdef int64_t current_versions(self)
    cdef str recorded_at(self)
    cdef Node edge(self, int i)
    cdef Visit* target(self, int i) noexcept
    cdef bint needs(self, int i) noexcept
    cdef Array gradient(self, int output)
    cdef Array value(self, int i)
    cdef int send(self, int i, Array g) except -1
    cdef int send_all(self, tuple gradients) except -1
    cdef int give(self, int i, Array g) except -1
    cdef Array gathered(self, int i)
    cdef bint can_accumulate(self, int i) noexcept
    cdef Array accumulator(self, int i)
    cdef Array attach(self, int i, Array x)
    cdef Array output(self)

ctypedef PyObject* Reference

cdef class Pass:
    cdef uint64_t number
    cdef vector[Visit] visits       # sorted, and of fixed size once `collect` has ended
    cdef PyObject* outer            # the pass of this thread in which it runs, or NULL
    cdef dict callbacks             # what `call_after_pass` was given, as keys

    cdef Visit* visit_of(self, PyObject* node) noexcept
    cdef void leave(self, Visit* visit) noexcept

cdef inline Node node_at(Pass current, size_t place):
    return <Node>current.visits[place].node

cdef inline Visit* find(Pass current, Node node) noexcept:
    """The visit of a node; NULL if the pass does not have it."""
    return current.visit_of(<PyObject*>node)

cdef enum:              # modes of a thread
    RECORDING = 1       # operations make nodes
    WHERE = 2           # nodes note their source line
    ANOMALY = 4         # backward checks every gradient for NaN and infinity
