/* Solves A x = b with conjugate gradients in C, for the 5-point matrix of a square that the program
 * builds itself. usage: cg [ROWS-OF-THE-SQUARE] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <ellect.h>

/* Ends the program with the library's message if a call failed. */
static void check(ellect_status status) {
    if (status != ELLECT_OK) {
        fprintf(stderr, "%s: %s\n", ellect_status_name(status), ellect_last_error_message());
        exit(1);
    }
}

/* Builds the matrix with 32-bit indices and borrows its arrays. */
static ellect_matrix *poisson(int32_t side, int32_t *row_ptr, int32_t *col_idx, double *values) {
    int32_t nnz = 0;
    for (int32_t row = 0; row < side * side; row++) {
        const int32_t i = row / side, j = row % side;
        row_ptr[row] = nnz;
        const int32_t columns[5] = {row - side, row - 1, row, row + 1, row + side};
        const int stored[5] = {i > 0, j > 0, 1, j + 1 < side, i + 1 < side};
        for (int k = 0; k < 5; k++) {
            if (stored[k]) {
                col_idx[nnz] = columns[k];
                values[nnz++] = k == 2 ? 4.0 : -1.0;
            }
        }
    }
    row_ptr[side * side] = nnz;

    ellect_csr csr = {0};
    csr.struct_size = sizeof csr;
    csr.nrows = csr.ncols = side * side;
    csr.nnz = nnz;
    csr.row_ptr = row_ptr;
    csr.col_idx = col_idx;
    csr.values = values;
    csr.row_ptr_type = csr.col_idx_type = ELLECT_I32;
    csr.value_type = ELLECT_F64;
    ellect_matrix *matrix;
    check(ellect_matrix_create(&csr, &matrix));
    return matrix;
}

static double dot(int64_t n, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Solves A x = b from x = 0; r, p and q are scratch memory. Returns the number of iterations. */
static int solve(const ellect_operator *a, int64_t n, const double *b, double *x, double *r, double *p,
                 double *q) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0;
        r[i] = p[i] = b[i];
    }
    double rr = dot(n, r, r);
    const double enough = 1e-20 * rr;
    int iterations = 0;
    while (rr > enough && iterations < 10000) {
        check(ellect_apply(a, 1.0, p, n, 0.0, q, n));
        const double alpha = rr / dot(n, p, q);
        for (int64_t i = 0; i < n; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        const double next = dot(n, r, r);
        for (int64_t i = 0; i < n; i++) {
            p[i] = r[i] + next / rr * p[i];
        }
        rr = next;
        iterations++;
    }
    return iterations;
}

int main(int argc, char **argv) {
    const int32_t side = argc > 1 ? atoi(argv[1]) : 100;
    if (side < 1 || side > 10000) {
        fprintf(stderr, "the square has %d rows; it must have 1 to 10000\n", (int)side);
        return 2;
    }
    const int64_t n = (int64_t)side * side;
    int32_t *row_ptr = malloc((size_t)(n + 1) * sizeof *row_ptr);
    int32_t *col_idx = malloc((size_t)(5 * n) * sizeof *col_idx);
    double *values = malloc((size_t)(5 * n) * sizeof *values);
    double *vectors = malloc((size_t)(6 * n) * sizeof *vectors);
    if (!row_ptr || !col_idx || !values || !vectors) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }

    ellect_tuner *tuner;
    check(ellect_tuner_open("cpu", NULL, &tuner));
    ellect_matrix *matrix = poisson(side, row_ptr, col_idx, values);
    ellect_workload workload = {0};
    workload.struct_size = sizeof workload;
    workload.spmvs = 1000000;
    ellect_operator *a;
    check(ellect_prepare(tuner, matrix, &workload, &a));
    ellect_matrix_destroy(matrix);
    ellect_tuner_destroy(tuner);

    /* b = A e for e = (0, 1, .., 6, 0, 1, ..), so the solution is known. */
    double *e = vectors, *b = vectors + n, *x = vectors + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        e[i] = (double)(i % 7);
    }
    check(ellect_apply(a, 1.0, e, n, 0.0, b, n));
    const int iterations = solve(a, n, b, x, vectors + 3 * n, vectors + 4 * n, vectors + 5 * n);

    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(x[i] - e[i]));
    }
    ellect_operator_info info = {0};
    info.struct_size = sizeof info;
    check(ellect_operator_describe(a, &info));
    printf("%s: %d iterations, largest error %.1e\n", info.candidate, iterations, largest);
    ellect_operator_destroy(a);
    free(row_ptr);
    free(col_idx);
    free(values);
    free(vectors);
    return largest < 1e-6 ? 0 : 1;
}
