/* Solves A x = b with conjugate gradients on several processes with MPI, for the 5-point matrix of a
 * square: each process has some lines of the square. Process 0 then solves the same alone and compares.
 * usage: mpirun -n PROCESSES mpi_cg [ROWS-OF-THE-SQUARE] */
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <ellect.h>

/* Ends all processes with the library's message if a call failed. */
static void check(ellect_status status) {
    if (status != ELLECT_OK) {
        fprintf(stderr, "%s: %s\n", ellect_status_name(status), ellect_last_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* The communicator of the messages, and those that are on their way. */
struct messages {
    MPI_Comm comm;
    MPI_Request *requests;
    int count;
};

/* Begins to receive and to send; `finish` waits. */
static int32_t exchange(void *context, const ellect_message *send, int64_t sends,
                        const ellect_message *receive, int64_t receives) {
    struct messages *messages = context;
    messages->count = 0;
    for (int64_t i = 0; i < receives + sends; i++) {
        const ellect_message *message = i < receives ? &receive[i] : &send[i - receives];
        if (message->size > INT_MAX) {
            return MPI_ERR_COUNT;
        }
        const int size = (int)message->size, rank = (int)message->rank;
        MPI_Request *request = &messages->requests[messages->count++];
        const int status =
            i < receives
                ? MPI_Irecv(message->bytes, size, MPI_BYTE, rank, 0, messages->comm, request)
                : MPI_Isend(message->bytes, size, MPI_BYTE, rank, 0, messages->comm, request);
        if (status != MPI_SUCCESS) {
            return status;
        }
    }
    return 0;
}

static int32_t finish(void *context) {
    struct messages *messages = context;
    return MPI_Waitall(messages->count, messages->requests, MPI_STATUSES_IGNORE);
}

/* Builds these rows of the matrix, with the columns of the whole one. */
static ellect_matrix *poisson(int32_t side, int32_t first, int32_t end) {
    const size_t most = 5 * (size_t)(end - first);
    int32_t *row_ptr = allocate((size_t)(end - first) + 1, sizeof *row_ptr);
    int32_t *col_idx = allocate(most, sizeof *col_idx);
    double *values = allocate(most, sizeof *values);
    int32_t nnz = 0;
    for (int32_t row = first; row < end; row++) {
        const int32_t i = row / side, j = row % side;
        const int32_t columns[5] = {row - side, row - 1, row, row + 1, row + side};
        const int stored[5] = {i > 0, j > 0, 1, j + 1 < side, i + 1 < side};
        for (int k = 0; k < 5; k++) {
            if (stored[k]) {
                col_idx[nnz] = columns[k];
                values[nnz++] = k == 2 ? 4.0 : -1.0;
            }
        }
        row_ptr[row - first + 1] = nnz;
    }
    ellect_csr csr = {0};
    csr.struct_size = sizeof csr;
    csr.nrows = end - first;
    csr.ncols = side * side;
    csr.nnz = nnz;
    csr.row_ptr = row_ptr;
    csr.col_idx = col_idx;
    csr.values = values;
    csr.row_ptr_type = csr.col_idx_type = ELLECT_I32;
    csr.value_type = ELLECT_F64;
    csr.ownership = ELLECT_COPY;
    ellect_matrix *matrix;
    check(ellect_matrix_create(&csr, &matrix));
    free(row_ptr);
    free(col_idx);
    free(values);
    return matrix;
}

/* A matrix on all processes, or on this one alone. */
struct system {
    const ellect_rank *rank;
    const ellect_rank_operator *shared;
    const ellect_operator *alone;
    int64_t n;
};

static void multiply(const struct system *a, const double *x, double *y) {
    check(a->shared != NULL ? ellect_rank_apply(a->shared, 1.0, x, a->n, 0.0, y, a->n)
                            : ellect_apply(a->alone, 1.0, x, a->n, 0.0, y, a->n));
}

static double dot(const struct system *a, const double *x, const double *y) {
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        sum += x[i] * y[i];
    }
    if (a->rank != NULL) {
        check(ellect_rank_sum(a->rank, &sum, 1));
    }
    return sum;
}

/* Solves A x = A e from x = 0 for e = (0, 1, .., 6, 0, 1, ..), whose first own element has this number.
 * Returns the number of iterations. */
static int solve(const struct system *a, int32_t first, double *x) {
    double *vectors = allocate(3 * (size_t)a->n, sizeof *vectors);
    double *r = vectors, *p = vectors + a->n, *q = vectors + 2 * a->n;
    for (int64_t i = 0; i < a->n; i++) {
        x[i] = 0;
        p[i] = (double)((first + i) % 7);
    }
    multiply(a, p, r);
    for (int64_t i = 0; i < a->n; i++) {
        p[i] = r[i];
    }
    double rr = dot(a, r, r);
    const double enough = 1e-22 * rr;
    int iterations = 0;
    while (rr > enough && iterations < 10000) {
        multiply(a, p, q);
        const double alpha = rr / dot(a, p, q);
        for (int64_t i = 0; i < a->n; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        const double next = dot(a, r, r);
        for (int64_t i = 0; i < a->n; i++) {
            p[i] = r[i] + next / rr * p[i];
        }
        rr = next;
        iterations++;
    }
    free(vectors);
    return iterations;
}

/* Solves on process 0 alone and returns the largest difference. */
static double compared(const ellect_tuner *tuner, int32_t side, const double *shared) {
    const int32_t n = side * side;
    ellect_matrix *matrix = poisson(side, 0, n);
    ellect_operator *op;
    check(ellect_prepare(tuner, matrix, NULL, &op));
    ellect_matrix_destroy(matrix);
    const struct system a = {NULL, NULL, op, n};
    double *x = allocate((size_t)n, sizeof *x), largest = 0;
    solve(&a, 0, x);
    for (int32_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(x[i] - shared[i]));
    }
    free(x);
    ellect_operator_destroy(op);
    return largest;
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    struct messages messages = {MPI_COMM_NULL, NULL, 0};
    MPI_Comm_dup(MPI_COMM_WORLD, &messages.comm);
    MPI_Comm_set_errhandler(messages.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(messages.comm, &rank);
    MPI_Comm_size(messages.comm, &size);
    const int32_t side = argc > 1 ? atoi(argv[1]) : 60;
    if (side < 1 || side > 10000) {
        fprintf(stderr, "the square has %d rows; it must have 1 to 10000\n", (int)side);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    messages.requests = allocate(2 * (size_t)size, sizeof *messages.requests);

    ellect_ranks ranks = {0};
    ranks.struct_size = sizeof ranks;
    ranks.rank = rank;
    ranks.size = size;
    ranks.exchange = exchange;
    ranks.finish = finish;
    ranks.context = &messages;
    ellect_rank *own;
    check(ellect_rank_create(&ranks, &own));
    ellect_tuner *tuner;
    check(ellect_tuner_open("cpu", NULL, &tuner));

    /* Whole lines of the square; there may be more processes than lines. */
    int *first = allocate((size_t)size + 1, sizeof *first), *rows = allocate((size_t)size, sizeof *rows);
    for (int i = 0; i <= size; i++) {
        first[i] = (int)((int64_t)side * i / size) * side;
        if (i > 0) {
            rows[i - 1] = first[i] - first[i - 1];
        }
    }
    ellect_matrix *matrix = poisson(side, first[rank], first[rank + 1]);
    ellect_rank_operator *op;
    check(ellect_rank_prepare(tuner, own, matrix, -1, NULL, &op));
    ellect_matrix_destroy(matrix);
    ellect_rank_info info = {0};
    info.struct_size = sizeof info;
    check(ellect_rank_describe(op, &info));

    const struct system a = {own, op, NULL, rows[rank]};
    double *x = allocate((size_t)rows[rank], sizeof *x);
    double *all = allocate((size_t)side * (size_t)side, sizeof *all);
    const int iterations = solve(&a, first[rank], x);
    MPI_Gatherv(x, rows[rank], MPI_DOUBLE, all, rows, first, MPI_DOUBLE, 0, messages.comm);
    int wrong = 0;
    if (rank == 0) {
        double largest = 0;
        for (int32_t i = 0; i < side * side; i++) {
            largest = fmax(largest, fabs(all[i] - (double)(i % 7)));
        }
        const double apart = compared(tuner, side, all);
        printf("%s on %d processes: %d iterations, largest error %.1e, %.1e from one process\n",
               info.candidate, size, iterations, largest, apart);
        wrong = !(largest < 1e-6 && apart < 1e-8);
    }
    ellect_rank_operator_destroy(op);
    ellect_rank_destroy(own);
    ellect_tuner_destroy(tuner);
    free(all);
    free(x);
    free(first);
    free(rows);
    free(messages.requests);
    MPI_Comm_free(&messages.comm);
    MPI_Finalize();
    return wrong;
}
