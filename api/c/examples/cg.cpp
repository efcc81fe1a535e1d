// Solves A x = b with conjugate gradients in C++17, for a matrix from a file, in a permuted basis where
// a format gains from one. usage: cg FILE
#include <cmath>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include <ellect.hpp>

using vector = std::vector<double>;

static double dot(const vector &a, const vector &b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Solves A x = b from x = 0 and returns the number of iterations.
static int solve(const ellect::prepared<double> &a, const vector &b, vector &x) {
    vector r = b, p = b, q(b.size());
    double rr = dot(r, r);
    const double enough = 1e-20 * rr;
    int iterations = 0;
    for (; rr > enough && iterations < 10000; iterations++) {
        // q = A p, with (q, p).
        double pq = 0.0;
        ellect_fused fused = ellect::fused();
        const std::int32_t with[] = {ELLECT_DOT_X};
        fused.with = with;
        fused.dots = 1;
        fused.results = &pq;
        a.apply_fused(1.0, p, 0.0, q, fused);
        const double alpha = rr / pq;
        for (std::size_t i = 0; i < x.size(); i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        const double next = dot(r, r);
        for (std::size_t i = 0; i < x.size(); i++) {
            p[i] = r[i] + next / rr * p[i];
        }
        rr = next;
    }
    return iterations;
}

// Returns the largest entry of |b - A x|, computed from the CSR arrays.
static double residual(const ellect_csr &csr, const vector &x, const vector &b) {
    const auto *row_ptr = static_cast<const std::int64_t *>(csr.row_ptr);
    const auto *col_idx = static_cast<const std::int32_t *>(csr.col_idx);
    const auto *values = static_cast<const double *>(csr.values);
    double largest = 0.0;
    for (std::size_t row = 0; row < b.size(); row++) {
        double sum = b[row];
        for (std::int64_t k = row_ptr[row]; k < row_ptr[row + 1]; k++) {
            sum -= values[k] * x[static_cast<std::size_t>(col_idx[k])];
        }
        largest = std::fmax(largest, std::fabs(sum));
    }
    return largest;
}

static int run(const char *path) {
    const auto matrix = ellect::matrix<double>::read(path);
    const ellect_csr csr = matrix.csr();
    const vector b(static_cast<std::size_t>(csr.nrows), 1.0);

    const ellect::tuner tuner("cpu");
    ellect_workload workload = ellect::workload(1000000);
    workload.basis = ELLECT_PERMUTED;
    workload.transposed = 1;
    const auto a = tuner.prepare(matrix, workload);

    // Permute b into the operator's basis once, and x back once.
    const auto [order, length] = a.permutation();
    vector b_here = b, x_here(b.size()), x(b.size());
    for (std::int64_t i = 0; i < length; i++) {
        b_here[static_cast<std::size_t>(i)] = b[order[i]];
    }
    const int iterations = solve(a, b_here, x_here);
    x = x_here;
    for (std::int64_t i = 0; i < length; i++) {
        x[order[i]] = x_here[static_cast<std::size_t>(i)];
    }

    // Two right-hand sides at once: the solution and its double.
    vector both = x_here, products(2 * b.size());
    for (const double value : x_here) {
        both.push_back(2 * value);
    }
    a.apply_many(2, 1.0, both, 0.0, products);
    for (std::size_t i = 0; i < b.size(); i++) {
        if (std::abs(products[b.size() + i] - 2 * products[i]) > 1e-9) {
            return 1;
        }
    }

    // The matrix is symmetric, so its transpose gives the same products.
    vector turned(b.size());
    a.apply_transposed(1.0, x_here, 0.0, turned);
    a.apply_many_transposed(2, 1.0, both, 0.0, products);
    for (std::size_t i = 0; i < b.size(); i++) {
        if (std::abs(turned[i] - products[i]) > 1e-9 || std::abs(turned[i] - b_here[i]) > 1e-6) {
            return 1;
        }
    }

    const double left = residual(csr, x, b);
    std::printf("%s: %d iterations, largest residual %.1e\n", a.info().candidate, iterations, left);
    return left < 1e-6 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: cg FILE\n");
        return 2;
    }
    try {
        return run(argv[1]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
