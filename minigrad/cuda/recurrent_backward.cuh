// ---- backward: sample s of a group, n of the batch, at step t ----------------------------------------------------------

// The buffers of the backward pass. Before a step, dh has the gradient of its h without gy; after the step, it has the
// gradient of the previous h on all paths.
struct Gradients {
    const T* gy;                      // [T, N, H]
    T *dh, *dc;                       // [N, H]
    T *dx, *dz;                       // [T, N, columns]; dz may be dx
    double *affine, *affine_c;        // [N, 2, columns]: dgamma, dbeta; [N, 2, H]: dgamma_c, dbeta_c
};

// A block's part of the rows of a step. If it is in shared memory, `keep_gradients` copies the gradients of a and z to
// the arrays after the step, and `copy_to` the others after the last step.
struct StepBack {
    Rows<T> da, dh, dc;           // da is the gradient of u: a GRU's candidate has another one of a
    Rows<double> affine, affine_c;  // dgamma of each gate, then dbeta of each

    __device__ StepBack(const Layer& r, const Gradients& d, const BlockGroup& group, int64 t, int64 first) {
        const int H = r.hidden, U = group.units;
        if (group.own) {
            const int row = (r.gates + 2) * U, sums = (2 * r.gates + 2) * U;
            da = {group.own, row, U}, dh = {group.own + r.gates * U, row, 0}, dc = {group.own + (r.gates + 1) * U, row, 0};
            double* base = (double*)(group.own + (group.samples * row + WIDE - 1) / WIDE * WIDE);
            affine = {base, sums, U}, affine_c = {base + 2 * r.gates * U, sums, U};
            if (!d.affine) affine.base = 0;
            if (!d.affine_c) affine_c.base = 0;
        } else {
            da = {r.row(r.kind == GRU ? d.dz : d.dx, t, first, r.columns) + group.begin, r.columns, H};
            of_arrays(r, d, group, first);
        }
    }

    // The sums over the steps, in the arrays
    __device__ void of_arrays(const Layer& r, const Gradients& d, const BlockGroup& group, int64 first) {
        const int H = r.hidden;
        dh = {r.row(d.dh, 0, first, H) + group.begin, H, 0};
        dc = {d.dc ? r.row(d.dc, 0, first, H) + group.begin : d.dc, H, 0};
        affine = {d.affine ? d.affine + first * 2 * r.columns + group.begin : d.affine, 2 * r.columns, H};
        affine_c = {d.affine_c ? d.affine_c + first * 2 * H + group.begin : d.affine_c, 2 * H, H};
    }

    // Copies these sums, where there are any
    __device__ void copy_to(const StepBack& other, const Layer& r, const BlockGroup& group, int s) const {
        UNITS(u, group) {
            other.dh.at(s, 0, u) = dh.at(s, 0, u);
            if (dc.base && other.dc.base) other.dc.at(s, 0, u) = dc.at(s, 0, u);
            for (int g = 0; g < 2 * r.gates && affine.base; g++) other.affine.at(s, g, u) = affine.at(s, g, u);
            for (int g = 0; g < 2 && affine_c.base; g++) other.affine_c.at(s, g, u) = affine_c.at(s, g, u);
        }
    }
};

// Takes the gradients of a and u. Without a norm, u is z, so its gradient is a factor of the product.
__device__ inline void give_gradient(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my, int64 t,
                                     int s, int64 n, int g, int u, T da, T du) {
    const int j = g * r.hidden + group.begin + u;
    my.da.at(s, g, u) = du;
    if (!group.own || (r.kind == GRU && g == 2)) r.row(d.dx, t, n, r.columns)[j] = da;
    if (r.norm != NO_NORM) return;
    if (!group.own || group.kind == GRID) r.row(d.dz, t, n, r.columns)[j] = du;
    group.give_factor(group.of_step(t) + s * group.stride + j, du);
}

// An LSTM's gradients of m and o; dh becomes the gradient of m.
__device__ inline void lstm_output_backward(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my,
                                            int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *next = r.row(r.c, t + 1, n, H), *gy = r.row(d.gy, t, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : next;
    Kept kept = {};
    if (r.norm_cell) kept = *r.row(r.stats_c, t, n, 1);
    double total[2] = {};
    add_up<2, int>(group.lane, group.count, group.lanes, total, [&](int u, T* part) {
        const int j = group.begin + u;
        const T xhat = kept.standard(raw[j]);
        const T m = r.norm_cell && !r.raw_c ? xhat * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0) : next[j];
        const T o = act[3 * H + j], y = tanh(m), dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        T dm = dh * o * (1 - y * y);
        if (r.raw_c) {
            dm += my.dc.at(s, 0, u);
            my.dc.at(s, 0, u) = 0;
        }
        const T da = dh * y * gate_slope(r.slope, o);
        give_gradient(r, d, group, my, t, s, n, 3, u, da, da);
        my.dh.at(s, 0, u) = dm;
        part[0] += dm * at(r.gamma_c, j, 1);
        part[1] += dm * at(r.gamma_c, j, 1) * xhat;
    });
    if (!r.norm_cell) return;
    team_sum<2>(group.lanes, total);
    group.give(s, OF_CELL, {total[0], total[1]});
}

__device__ inline void lstm_backward(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my,
                                     int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *c = r.row(r.c, t, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : r.row(r.c, t + 1, n, H);
    Kept kept = {};
    Through through = {};
    if (r.norm_cell) {
        kept = *r.row(r.stats_c, t, n, 1);
        through = means(r, group, s, OF_CELL, H);
    }
    UNITS(u, group) {
        const int j = group.begin + u;
        T dm = my.dh.at(s, 0, u);
        if (r.norm_cell) {
            const T xhat = kept.standard(raw[j]);
            if (my.affine_c.base) {
                my.affine_c.at(s, 0, u) += dm * xhat;
                my.affine_c.at(s, 1, u) += dm;
            }
            dm = through(dm * at(r.gamma_c, j, 1), xhat, kept.scale);
        }
        const T i = act[j], f = act[H + j], g = act[2 * H + j], all = my.dc.at(s, 0, u) + dm;
        const T da[3] = {all * g * gate_slope(r.slope, i), all * c[j] * gate_slope(r.slope, f), all * i * (1 - g * g)};
UNROLLED(k, 3) give_gradient(r, d, group, my, t, s, n, k, u, da[k], da[k]);
        my.dc.at(s, 0, u) = all * f;
        my.dh.at(s, 0, u) = 0;
    }
}

__device__ inline void gru_backward(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my,
                                    int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *z = r.row(r.z, t, n, r.columns), *h = r.row(r.h, t, n, H);
    const T* gy = r.row(d.gy, t, n, H);
    Kept kept = {};
    if (r.norm != NO_NORM) kept = r.row(r.stats, t, n, r.segments)[r.segments - 1];
    UNITS(u, group) {
        const int j = group.begin + u, k = 2 * H + j;
        const T candidate = r.norm == NO_NORM ? z[k] : kept.standard(z[k]) * at(r.gamma, k, 1) + at(r.beta, k, 0);
        const T reset = act[j], update = act[H + j], y = act[k], dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        const T w = r.swap ? 1 - update : update, dn = dh * (1 - w) * (1 - y * y);
        const T of_reset = dn * candidate * gate_slope(r.slope, reset);
        const T of_update = (r.swap ? -dh : dh) * (h[j] - y) * gate_slope(r.slope, update);
        give_gradient(r, d, group, my, t, s, n, 0, u, of_reset, of_reset);
        give_gradient(r, d, group, my, t, s, n, 1, u, of_update, of_update);
        give_gradient(r, d, group, my, t, s, n, 2, u, dn, dn * reset);
        my.dh.at(s, 0, u) = dh * w;
    }
}

__device__ inline void rnn_backward(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my,
                                    int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *h = r.row(r.h, t + 1, n, H), *gy = r.row(d.gy, t, n, H);
    UNITS(u, group) {
        const int j = group.begin + u;
        const T y = h[j], dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        const T da = r.kind == RNN_TANH ? dh * (1 - y * y) : y <= 0 ? T(0) : dh;
        give_gradient(r, d, group, my, t, s, n, 0, u, da, da);
        my.dh.at(s, 0, u) = 0;
    }
}

// Gives the other blocks this block's part of the sums of segment k of the row
__device__ inline void give_sums(const Layer& r, const BlockGroup& group, const StepBack& my, int64 t, int s, int64 n, int k) {
    const Kept kept = r.row(r.stats, t, n, r.segments)[k];
    const T* z = r.row(r.z, t, n, r.columns);
    double total[2] = {};
    for (int g = 0; g < r.gates; g++) {
        const Range range(r, group, group.rank, g, r.first(k), r.end(k));
        add_up<2, int>(range.first + group.lane, range.last, group.lanes, total, [&](int j, T* part) {
            const T v = my.da.at(s, g, j - g * r.hidden - group.begin) * at(r.gamma, j, 1);
            part[0] += v;
            part[1] += v * kept.standard(z[j]);
        });
    }
    team_sum<2>(group.lanes, total);
    group.give(s, k, {total[0], total[1]});
}

// dz of segment k of the row, and its contribution to dgamma and dbeta
__device__ inline void through_norm(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my, int64 t, int s,
                                    int64 n, int k) {
    const Kept kept = r.row(r.stats, t, n, r.segments)[k];
    const Through through = means(r, group, s, k, r.end(k) - r.first(k));
    const T* z = r.row(r.z, t, n, r.columns);
    T* dz = r.row(d.dz, t, n, r.columns);
    for (int g = 0; g < r.gates; g++) {
        const Range range(r, group, group.rank, g, r.first(k), r.end(k));
        for (int j = range.first + group.lane; j < range.last; j += group.lanes) {
            const int u = j - g * r.hidden - group.begin;
            const T xhat = kept.standard(z[j]), v = my.da.at(s, g, u);
            if (my.affine.base) {
                my.affine.at(s, g, u) += v * xhat;
                my.affine.at(s, r.gates + g, u) += v;
            }
            const T of_z = through(v * at(r.gamma, j, 1), xhat, kept.scale);
            if (!group.own || group.kind == GRID) dz[j] = of_z;
            group.give_factor(group.of_step(t) + s * group.stride + j, of_z);
        }
    }
}

// Copies the gradients of a step to the arrays; a sample that has ended has gradients 0.
__device__ inline void keep_gradients(const Layer& r, const Gradients& d, const BlockGroup& group, const StepBack& my, int64 t,
                                      int s, int64 n) {
    const bool alive = r.alive(t, n);
    if (alive && !group.own) return;
    T *dx = r.row(d.dx, t, n, r.columns), *dz = r.row(d.dz, t, n, r.columns);
    const T* factor = group.of_step(t) + s * group.stride;
    for (int g = 0; g < r.gates; g++) {
        UNITS(u, group) {
            const int j = g * r.hidden + group.begin + u;
            if (!alive) {
                dx[j] = dz[j] = 0;
                continue;
            }
            if (dx != dz && !(r.kind == GRU && g == 2)) dx[j] = my.da.at(s, g, u);
            if (group.kind != GRID) dz[j] = factor[j];
        }
    }
}

__device__ inline void steps_back(const Layer& r, const Gradients& d, BlockGroup& group, int64 begin, int64 end) {
    const int H = r.hidden;
    const int n = group.units, groups = gridDim.x / group.size;
    if (group.resident)
        load_matrix((T*)dynamic_shared(), int(r.columns), n, [&](int i, int c) {
            return c < group.count ? group.w[i * H + group.begin + c] : T(0);
        });
    for (int64 first = blockIdx.x / group.size * (int64)group.samples; first < r.batch; first += groups * (int64)group.samples) {
        const int count = int(min(int64(group.samples), r.batch - first));
        StepBack sums(r, d, group, 0, first);
        sums.of_arrays(r, d, group, first);
        if (group.w && group.kind != GRID) {
            for (T* factor = group.factors + threadIdx.x; factor < group.parts; factor += blockDim.x) *factor = 0;
        }
        if (group.own) {
            SAMPLES(s, count, group) sums.copy_to(StepBack(r, d, group, 0, first), r, group, s);
        }
        group.wait();
        for (int64 t = end - 1; t >= begin; t--) {
            const StepBack my(r, d, group, t, first);
            SAMPLES(s, count, group) {
                if (!r.alive(t, first + s)) continue;
                if (r.kind == LSTM) {
                    lstm_output_backward(r, d, group, my, t, s, first + s);
                } else if (r.kind == GRU) {
                    gru_backward(r, d, group, my, t, s, first + s);
                } else {
                    rnn_backward(r, d, group, my, t, s, first + s);
                }
            }
            if (r.norm_cell) group.wait();
            if (r.kind == LSTM) {
                SAMPLES(s, count, group) {
                    if (r.alive(t, first + s)) lstm_backward(r, d, group, my, t, s, first + s);
                }
            }
            if (r.norm != NO_NORM) {
                SAMPLES(s, count, group) {
                    if (!r.alive(t, first + s)) continue;
                    group.wait_for_lanes();
SEGMENTS(k, r) {
                        give_sums(r, group, my, t, s, first + s, k);
                    }
                }
                group.wait();
                SAMPLES(s, count, group) {
                    if (!r.alive(t, first + s)) continue;
SEGMENTS(k, r) {
                        through_norm(r, d, group, my, t, s, first + s, k);
                    }
                }
            }
            group.wait();
            SAMPLES(s, count, group) keep_gradients(r, d, group, my, t, s, first + s);
            if (!group.w) continue;
            multiply_all(group, int(r.columns), n, group.of_step(t), count,
                         [&](int s) { return r.alive(t, first + s) ? r.row(d.dz, t, first + s, r.columns) : (T*)0; },
                         [&](int s, int u, T product) {
                             if (u < group.count && r.alive(t, first + s)) my.dh.at(s, 0, u) += product;
                         });
        }
        if (group.own) {
            SAMPLES(s, count, group) StepBack(r, d, group, 0, first).copy_to(sums, r, group, s);
        }
    }
}
