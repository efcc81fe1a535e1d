/* Matrices of every type, products, new values, bases, files, threads. usage: products [FILE] */
#include <math.h>
#include <pthread.h>

#include "check.h"

/* Every combination of index and value types multiplies right; all numbers are exact. */
static void every_type_multiplies(void) {
    const int64_t wide_rows[] = {0, 2, 3, 3, 5, 6}, wide_columns[] = {0, 2, 1, 0, 3, 2};
    const float narrow_values[] = {4, 1, 5, 2, 6, 3}, narrow_x[] = {1, 10, 100, 1000};
    for (int types = 0; types < 16; types++) {
        ellect_csr csr = example();
        if (types & 1) {
            csr.row_ptr = wide_rows;
            csr.row_ptr_type = ELLECT_I64;
        }
        if (types & 2) {
            csr.col_idx = wide_columns;
            csr.col_idx_type = ELLECT_I64;
        }
        if (types & 4) {
            csr.values = narrow_values;
            csr.value_type = ELLECT_F32;
        }
        csr.ownership = types & 8 ? ELLECT_COPY : ELLECT_BORROW;
        ellect_operator *op = prepared(csr);
        double y[5] = {NAN, NAN, NAN, NAN, NAN};
        float narrow_y[5] = {NAN, NAN, NAN, NAN, NAN};
        for (int round = 0; round < 2; round++) {
            /* First y = A x over NaN, then y = 2 A x - y = A x. */
            const double alpha = 1 + round, beta = -round;
            if (types & 4) {
                OK(ellect_apply(op, alpha, narrow_x, 4, beta, narrow_y, 5));
            } else {
                OK(ellect_apply(op, alpha, X, 4, beta, y, 5));
            }
            for (int row = 0; row < 5; row++) {
                CHECK((types & 4 ? (double)narrow_y[row] : y[row]) == PRODUCT[row]);
            }
        }
        ellect_operator_info info = {0};
        info.struct_size = sizeof info;
        OK(ellect_operator_describe(op, &info));
        CHECK(info.nrows == 5 && info.ncols == 4 && info.nnz == 6 && info.bytes > 0);
        CHECK(info.value_type == csr.value_type && info.memory == ELLECT_HOST);
        CHECK(strlen(info.candidate) > 0);
        ellect_operator_destroy(op);
    }
}

/* Three vectors in both orders, with and without gaps, which no product may change. */
static void several_vectors_multiply(void) {
    enum { VECTORS = 3, MOST = 32 };
    ellect_operator *op = prepared(example());
    for (int way = 0; way < 8; way++) {
        const int32_t x_order = way & 1 ? ELLECT_ROW_MAJOR : ELLECT_COLUMN_MAJOR;
        const int32_t y_order = way & 2 ? ELLECT_ROW_MAJOR : ELLECT_COLUMN_MAJOR;
        const int gap = way & 4 ? 2 : 0;
        const int x_leading = (x_order ? VECTORS : 4) + gap, y_leading = (y_order ? VECTORS : 5) + gap;
        double x[MOST] = {0}, y[MOST];
        for (int i = 0; i < MOST; i++) {
            y[i] = 77;
        }
        for (int v = 0; v < VECTORS; v++) {
            for (int i = 0; i < 4; i++) {
                x[x_order ? i * x_leading + v : v * x_leading + i] = (v + 1) * X[i];
            }
        }
        for (int round = 0; round < 2; round++) {
            /* First Y = A X, then Y = 2 A X - Y = A X. A leading dimension of 0 is no gap. */
            OK(ellect_apply_many(op, VECTORS, 1.0 + round, x, gap ? x_leading : 0, x_order, -round, y,
                                 gap ? y_leading : 0, y_order));
            int checked = 0;
            for (int v = 0; v < VECTORS; v++) {
                for (int i = 0; i < 5; i++) {
                    const int place = y_order ? i * y_leading + v : v * y_leading + i;
                    CHECK(y[place] == (v + 1) * PRODUCT[i]);
                    checked++;
                    y[place] = round == 0 ? y[place] : 77;
                }
            }
            CHECK(checked == VECTORS * 5);
        }
        for (int i = 0; i < MOST; i++) {
            CHECK(y[i] == 77);
        }
    }
    OK(ellect_apply_many(op, 0, 1.0, NULL, 0, ELLECT_COLUMN_MAJOR, 0.0, NULL, 0, ELLECT_ROW_MAJOR));
    ellect_operator_destroy(op);
}

/* A matrix and its transpose, which get new values together; all numbers are exact. */
static void both_directions_multiply(void) {
    const double u[] = {1, 10, 100, 1000, 10000}, turned[] = {2004, 50, 30001, 6000};
    const double twice[] = {8, 2, 10, 4, 12, 6};
    const float narrow_values[] = {4, 1, 5, 2, 6, 3}, narrow_u[] = {1, 10, 100, 1000, 10000};
    for (int types = 0; types < 4; types++) {
        ellect_csr csr = example();
        ellect_matrix *matrix;
        ellect_operator *op;
        char *json;
        ellect_workload workload = {0};
        workload.struct_size = sizeof workload;
        workload.transposed = 500;
        workload.updates = types & 2 ? 1 : 0;
        workload.verify = 1;
        if (types & 1) {
            csr.values = narrow_values;
            csr.value_type = ELLECT_F32;
        }
        OK(ellect_matrix_create(&csr, &matrix));
        OK(ellect_prepare(CPU, matrix, &workload, &op));
        OK(ellect_choice_json(op, &json));
        CHECK(strstr(json, "\"transposed\":{") != NULL);
        ellect_string_destroy(json);
        if (types & 1) {
            float z[8] = {NAN, NAN, NAN, NAN}, narrow_y[5];
            OK(ellect_apply_transposed(op, 1.0, narrow_u, 5, 0.0, z, 4));
            for (int i = 0; i < 4; i++) {
                CHECK(z[i] == (float)turned[i]);
            }
            FAILS(ellect_apply_transposed(op, 1.0, z, 4, 0.0, narrow_y, 5), ELLECT_SHAPE);
        } else {
            double z[8] = {NAN, NAN, NAN, NAN}, y[5], x[10];
            OK(ellect_apply_transposed(op, 1.0, u, 5, 0.0, z, 4));
            CHECK(memcmp(z, turned, 4 * sizeof *z) == 0);
            OK(ellect_apply_transposed(op, 2.0, u, 5, -1.0, z, 4));
            CHECK(memcmp(z, turned, 4 * sizeof *z) == 0);
            for (int i = 0; i < 5; i++) {
                x[i] = u[i];
                x[5 + i] = 2 * u[i];
            }
            OK(ellect_apply_many_transposed(op, 2, 1.0, x, 0, ELLECT_COLUMN_MAJOR, 0.0, z, 0,
                                            ELLECT_ROW_MAJOR));
            OK(ellect_update_values(op, twice, 6));
            for (int i = 0; i < 4; i++) {
                CHECK(z[2 * i] == turned[i] && z[2 * i + 1] == 2 * turned[i]);
            }
            OK(ellect_apply(op, 1.0, X, 4, 0.0, y, 5));
            for (int i = 0; i < 5; i++) {
                CHECK(y[i] == 2 * PRODUCT[i]);
            }
            OK(ellect_apply_transposed(op, 1.0, u, 5, 0.0, z, 4));
            for (int i = 0; i < 4; i++) {
                CHECK(z[i] == 2 * turned[i]);
            }
            OK(ellect_update_matrix(op, matrix));
            OK(ellect_apply_transposed(op, 1.0, u, 5, 0.0, z, 4));
            CHECK(memcmp(z, turned, 4 * sizeof *z) == 0);
        }
        ellect_operator_destroy(op);
        ellect_matrix_destroy(matrix);
    }
}

static void products_are_summed_on_the_way(void) {
    const double z[] = {1, 2, 3, 4, 5}, u[] = {1, 2, 3, 4, 5}, turned[] = {12, 10, 16, 24};
    const int32_t with[] = {ELLECT_DOT_Z, ELLECT_DOT_Y};
    ellect_csr csr = example();
    ellect_matrix *matrix;
    ellect_operator *op;
    ellect_workload workload = {0};
    ellect_fused fused = {0};
    double y[5], w[] = {9, 9, 9, 9, 9}, results[2], t[4], one = 0;
    workload.struct_size = sizeof workload;
    workload.transposed = 1;
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_prepare(CPU, matrix, &workload, &op));
    fused.struct_size = sizeof fused;
    OK(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused));
    CHECK(memcmp(y, PRODUCT, sizeof y) == 0);
    fused.with = with;
    fused.dots = 2;
    fused.results = results;
    fused.z = z;
    fused.z_len = 5;
    fused.gamma = -2.0;
    fused.w = w;
    fused.w_len = 5;
    OK(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused));
    double zy = 0, yy = 0;
    for (int i = 0; i < 5; i++) {
        CHECK(y[i] == PRODUCT[i] && w[i] == 9 - 2 * PRODUCT[i]);
        zy += z[i] * y[i];
        yy += y[i] * y[i];
    }
    CHECK(results[0] == zy && results[1] == yy);
    /* With the transpose, (t, t) alone. */
    fused.with = with + 1;
    fused.dots = 1;
    fused.results = &one;
    fused.w = NULL;
    fused.transposed = 1;
    OK(ellect_apply_fused(op, 1.0, u, 5, 0.0, t, 4, &fused));
    CHECK(memcmp(t, turned, sizeof t) == 0);
    CHECK(one == 12 * 12 + 10 * 10 + 16 * 16 + 24 * 24);
    ellect_operator_destroy(op);
    ellect_matrix_destroy(matrix);
}

static void empty_matrices_multiply(void) {
    const int32_t offsets[] = {0, 0, 0};
    double y[2] = {7, 7};
    ellect_csr csr = example();
    csr.nrows = 2;
    csr.nnz = 0;
    csr.row_ptr = offsets;
    csr.col_idx = csr.values = NULL;
    ellect_operator *op = prepared(csr);
    OK(ellect_apply(op, 1.0, X, 4, 2.0, y, 2));
    CHECK(y[0] == 14 && y[1] == 14);
    ellect_operator_destroy(op);
    csr.nrows = csr.ncols = 0;
    op = prepared(csr);
    OK(ellect_apply(op, 1.0, NULL, 0, 0.0, NULL, 0));
    ellect_operator_destroy(op);
}

static void values_are_replaced(void) {
    const double twice[] = {8, 2, 10, 4, 12, 6};
    double y[5];
    ellect_operator *op = prepared(example());
    OK(ellect_update_values(op, twice, 6));
    OK(ellect_apply(op, 1.0, X, 4, 0.0, y, 5));
    for (int row = 0; row < 5; row++) {
        CHECK(y[row] == 2 * PRODUCT[row]);
    }
    FAILS(ellect_update_values(op, twice, 5), ELLECT_PATTERN_CHANGED);

    ellect_matrix *matrix;
    ellect_csr csr = example();
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_update_matrix(op, matrix));
    OK(ellect_apply(op, 1.0, X, 4, 0.0, y, 5));
    CHECK(memcmp(y, PRODUCT, sizeof y) == 0);
    ellect_matrix_destroy(matrix);

    const int32_t moved[] = {0, 3, 1, 0, 3, 2};
    csr.col_idx = moved;
    OK(ellect_matrix_create(&csr, &matrix));
    FAILS(ellect_update_matrix(op, matrix), ELLECT_PATTERN_CHANGED);
    ellect_matrix_destroy(matrix);
    ellect_operator_destroy(op);
}

/* Unsorted rows with a repeated entry are refused when borrowed and repaired in a copy. */
static void copies_are_repaired(void) {
    const int32_t rows[] = {0, 3, 4, 4, 6, 7}, columns[] = {2, 0, 2, 1, 3, 0, 2};
    const double values[] = {0.5, 4, 0.5, 5, 6, 2, 3};
    double y[5];
    ellect_csr csr = example();
    ellect_matrix *matrix;
    csr.nnz = 7;
    csr.row_ptr = rows;
    csr.col_idx = columns;
    csr.values = values;
    FAILS(ellect_matrix_create(&csr, &matrix), ELLECT_INVALID_MATRIX);
    CHECK(matrix == NULL);
    csr.ownership = ELLECT_COPY;
    ellect_operator *op = prepared(csr);
    OK(ellect_apply(op, 1.0, X, 4, 0.0, y, 5));
    CHECK(memcmp(y, PRODUCT, sizeof y) == 0);
    /* The caller's order is not that of the copy. */
    FAILS(ellect_update_values(op, VALUES, 6), ELLECT_INVALID_ARGUMENT);
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_update_matrix(op, matrix));
    ellect_csr view = {0};
    view.struct_size = sizeof view;
    OK(ellect_matrix_csr(matrix, &view));
    CHECK(view.nnz == 6 && view.row_ptr_type == ELLECT_I64 && view.col_idx_type == ELLECT_I32);
    CHECK(memcmp(view.values, VALUES, sizeof VALUES) == 0);
    CHECK(memcmp(view.col_idx, COLUMNS, sizeof COLUMNS) == 0);
    ellect_matrix_destroy(matrix);
    ellect_operator_destroy(op);
}

/* A file is read, and a permuted basis gives the same product. */
static void files_multiply_in_both_bases(const char *path) {
    ellect_matrix *matrix;
    ellect_csr csr = {0};
    csr.struct_size = sizeof csr;
    OK(ellect_matrix_read(path, ELLECT_F64, &matrix));
    OK(ellect_matrix_csr(matrix, &csr));
    const int64_t n = csr.nrows;
    const int64_t *row_ptr = csr.row_ptr;
    const int32_t *col_idx = csr.col_idx;
    const double *values = csr.values;
    double *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    CHECK(n > 100 && x && y);
    for (int basis = ELLECT_ORIGINAL; basis <= ELLECT_PERMUTED; basis++) {
        ellect_workload workload = {0};
        workload.struct_size = sizeof workload;
        workload.spmvs = 1000000;
        workload.basis = basis;
        workload.verify = 1;
        workload.vectors = 1 + 3 * basis;
        ellect_operator *op;
        OK(ellect_prepare(CPU, matrix, &workload, &op));
        const uint32_t *order;
        int64_t len;
        OK(ellect_permutation(op, &order, &len));
        CHECK((order == NULL) == (len == 0) && (len == 0 || len == n));
        CHECK(basis == ELLECT_PERMUTED || order == NULL);
        for (int64_t i = 0; i < n; i++) {
            x[i] = (double)((order ? order[i] : i) % 11) - 5;
        }
        OK(ellect_apply(op, 1.0, x, n, 0.0, y, n));
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = order ? order[i] : i;
            double sum = 0, size = 0;
            for (int64_t k = row_ptr[row]; k < row_ptr[row + 1]; k++) {
                sum += values[k] * (double)(col_idx[k] % 11 - 5);
                size += fabs(values[k]) * 5;
            }
            CHECK(fabs(y[i] - sum) <= 1e-13 * size);
        }
        ellect_operator_destroy(op);
    }
    free(x);
    free(y);
    ellect_matrix_destroy(matrix);
}

static void *multiply_often(void *op) {
    double y[5];
    for (int round = 0; round < 500; round++) {
        OK(ellect_apply(op, 1.0, X, 4, 0.0, y, 5));
        CHECK(memcmp(y, PRODUCT, sizeof y) == 0);
    }
    /* Failures of other threads are not seen here. */
    CHECK(ellect_last_error() == ELLECT_OK && ellect_last_error_message()[0] == '\0');
    return NULL;
}

static void threads_share_an_operator(void) {
    ellect_operator *op = prepared(example());
    pthread_t threads[4];
    FAILS(ellect_apply(op, 1.0, X, 3, 0.0, NULL, 5), ELLECT_NULL_POINTER);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, multiply_often, op) == 0);
    }
    for (int i = 0; i < 20; i++) {
        OK(ellect_update_values(op, VALUES, 6));
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    ellect_operator_destroy(op);
}

int main(int argc, char **argv) {
    OK(ellect_tuner_open("cpu", NULL, &CPU));
    every_type_multiplies();
    several_vectors_multiply();
    both_directions_multiply();
    products_are_summed_on_the_way();
    empty_matrices_multiply();
    values_are_replaced();
    copies_are_repaired();
    if (argc > 1) {
        files_multiply_in_both_bases(argv[1]);
    }
    threads_share_an_operator();
    ellect_tuner_destroy(CPU);
    return 0;
}
