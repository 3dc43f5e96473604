// The update rules of the optimizers, stated once for both devices: cext/kernels/optimizer.cpp calls them with V, a
// register of elements, optimizer.cu with one element.
//
// A rule changes a parameter p, given its gradient g, and the states, of which absent ones are 0 and not kept. Its
// numbers n, of type T, are combined in double on the host. A file that includes this one defines RULE, which
// precedes functions, square_root(v), and any_negative<T>(v, w): whether an element of v or w may be below 0.
//
// A mean or a sum of squares overflows long before the gradients do: from 1.8e19 in float32. A square above the largest
// number is stored as the negative of its root: -r means r^2.

namespace rules {

// sum += c x for c >= 0; a part of a rule that is switched off does not turn an infinite x into NaN
template <class V, class T>
RULE void add(V& sum, T c, V x) {
    if (c > 0) sum += c * x;
}

// The root of a stored square, of which `shifted` is the sum with an eps; `large`: whether it may be stored as a root
template <class V>
RULE V root_of(V square, V shifted, bool large) {
    if (!large) return square_root(shifted);
    return square < 0 ? -square : square_root(shifted);
}

// v = keep v + fresh d^2; returns whether v may be stored as a root. Where the square overflows, roots are added:
// sqrt(a^2 + b^2) = a sqrt(1 + (b/a)^2) for a >= b. A d that is not finite has the same result as without this.
template <class V, class T>
RULE bool advance(V& v, V d, T keep, T fresh) {
    const T most = sizeof(T) == 4 ? T(3.40282346638528859812e+38) : T(1.79769313486231570815e+308);
    const V before = v, left = most - (v = keep * before + fresh * (d * d));
    if (!any_negative<T>(before, left)) return false;
    const V x = square_root(V{} + keep) * root_of(before, before, true), y = square_root(V{} + fresh) * (d < 0 ? -d : d);
    const V larger = x > y ? x : y, ratio = (x > y ? y : x) / larger, sum = larger * square_root(1 + ratio * ratio);
    const auto large = ((before < 0) | (left < 0)) & (sum <= most);
    v = large ? (sum * sum <= most ? sum * sum : -sum) : v;
    return true;
}

// g += decay p, or decoupled from it p = shrink p
// buffer = momentum buffer + fresh g
// p -= direct g + carried buffer
template <class V, class T>
RULE void sgd(V& p, V g, V& buffer, V&, V&, bool, const T* n) {
    const T decay = n[0], shrink = n[1], momentum = n[2], fresh = n[3], direct = n[4], carried = n[5];
    V change{};
    add(g, decay, p);
    buffer = momentum * buffer + fresh * g;
    add(change, direct, g);
    add(change, carried, buffer);
    p = shrink * p - change;
}

// g += decay p, or decoupled from it p = shrink p
// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  v' = v or, if there is such a state, top = max(top, v)
// p -= (rate m + direct g) / (root sqrt(v') + eps)
template <class V, class T>
RULE void adam(V& p, V g, V& m, V& v, V& top, bool has_top, const T* n) {
    const T decay = n[0], shrink = n[1], beta1 = n[2], fresh1 = n[3], beta2 = n[4], fresh2 = n[5];
    const T rate = n[6], direct = n[7], root = n[8], eps = n[9];
    add(g, decay, p);
    m = beta1 * m + fresh1 * g;
    bool large = advance(v, g, beta2, fresh2);
    if (has_top) {
        large = large || any_negative<T>(top, top);
        top = (v - v != 0) | ((v > top) ^ ((v < 0) | (top < 0))) ? v : top;  // as squares; NaN and infinity too
    }
    const V square = has_top ? top : v;
    p = shrink * p - (rate * m + direct * g) / (root * root_of(square, square, large) + eps);
}

// g += decay p, or decoupled from it p = shrink p
// v = alpha v + (1 - alpha) g^2,  r = sqrt(v + inside) + outside or, if there is such a state,
// mean = alpha mean + (1 - alpha) g,  r = sqrt(v - mean^2 + inside) + outside
// buffer = momentum buffer + scale g / r,  p -= rate buffer
template <class V, class T>
RULE void rmsprop(V& p, V g, V& v, V& buffer, V& mean, bool has_mean, const T* n) {
    const T decay = n[0], shrink = n[1], alpha = n[2], fresh = n[3], inside = n[4], outside = n[5];
    const T momentum = n[6], scale = n[7], rate = n[8];
    add(g, decay, p);
    const bool large = advance(v, g, alpha, fresh);
    V root = root_of(v, v + inside, large);
    if (has_mean) {
        mean = alpha * mean + fresh * g;
        const V variance = v < 0 ? 1 - mean / v * (mean / v) : v - mean * mean;  // below 0 by rounding
        root = square_root((variance < 0 ? V{} : variance) + (v < 0 ? V{} : V{} + inside)) * (v < 0 ? -v : V{} + 1);
    }
    buffer = momentum * buffer + scale * g / (root + outside);
    p = shrink * p - rate * buffer;
}

// g += decay p,  sum += g^2,  p -= lr g / (sqrt(sum + inside) + outside)
template <class V, class T>
RULE void adagrad(V& p, V g, V& sum, V&, V&, bool, const T* n) {
    const T decay = n[0], inside = n[1], outside = n[2], lr = n[3];
    add(g, decay, p);
    const bool large = advance(sum, g, T(1), T(1));
    p -= lr * g / (root_of(sum, sum + inside, large) + outside);
}

// g += decay p,  v = rho v + (1 - rho) g^2
// change = sqrt(u + eps) / sqrt(v + eps) g,  u = rho u + (1 - rho) change^2,  p -= lr change
template <class V, class T>
RULE void adadelta(V& p, V g, V& v, V& u, V&, bool, const T* n) {
    const T decay = n[0], rho = n[1], fresh = n[2], eps = n[3], lr = n[4];
    add(g, decay, p);
    const bool large = advance(v, g, rho, fresh);
    const V change = root_of(u, u + eps, any_negative<T>(u, u)) / root_of(v, v + eps, large) * g;
    advance(u, change, rho, fresh);
    p -= lr * change;
}

// p = shrink p - lr sign(beta1 m + (1 - beta1) g),  m = beta2 m + (1 - beta2) g
template <class V, class T>
RULE void lion(V& p, V g, V& m, V&, V&, bool, const T* n) {
    const T shrink = n[0], beta1 = n[1], fresh1 = n[2], beta2 = n[3], fresh2 = n[4], lr = n[5];
    const V u = beta1 * m + fresh1 * g;
    p = shrink * p - lr * (u > 0 ? V{} + 1 : u < 0 ? V{} - 1 : u);
    m = beta2 * m + fresh2 * g;
}

}  // namespace rules
