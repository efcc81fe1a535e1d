/* A matrix shared by ranks that are threads of this process, and the failures of its functions. */
#include <pthread.h>

#include "check.h"

enum { RANKS = 3 };

/* Messages on their way: at most one from each rank to each other one. */
struct box {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *bytes[RANKS][RANKS];
};

struct own {
    struct box *box;
    int rank;
    /* Number of exchanges until one fails. */
    int left;
    const ellect_message *receive;
    int64_t receives;
    ellect_message room[RANKS];
};

static struct box BOX = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{NULL}}};

/* Copies messages into the box, which `finish` empties. */
static int32_t begin(void *context, const ellect_message *send, int64_t sends,
                     const ellect_message *receive, int64_t receives) {
    struct own *own = context;
    if (own->left-- == 0) {
        return 5;
    }
    CHECK(receives <= RANKS);
    memcpy(own->room, receive, (size_t)receives * sizeof *receive);
    own->receives = receives;
    pthread_mutex_lock(&own->box->lock);
    for (int64_t i = 0; i < sends; i++) {
        void **place = &own->box->bytes[own->rank][send[i].rank];
        while (*place != NULL) {
            pthread_cond_wait(&own->box->changed, &own->box->lock);
        }
        *place = malloc((size_t)send[i].size);
        CHECK(*place != NULL);
        memcpy(*place, send[i].bytes, (size_t)send[i].size);
    }
    pthread_cond_broadcast(&own->box->changed);
    pthread_mutex_unlock(&own->box->lock);
    return 0;
}

static int32_t finish(void *context) {
    struct own *own = context;
    pthread_mutex_lock(&own->box->lock);
    for (int64_t i = 0; i < own->receives; i++) {
        void **place = &own->box->bytes[own->room[i].rank][own->rank];
        while (*place == NULL) {
            pthread_cond_wait(&own->box->changed, &own->box->lock);
        }
        memcpy(own->room[i].bytes, *place, (size_t)own->room[i].size);
        free(*place);
        *place = NULL;
    }
    pthread_cond_broadcast(&own->box->changed);
    pthread_mutex_unlock(&own->box->lock);
    return 0;
}

static ellect_rank *rank_of(struct own *own, int size) {
    ellect_ranks ranks = {0};
    ranks.struct_size = sizeof ranks;
    ranks.rank = own->rank;
    ranks.size = size;
    ranks.exchange = begin;
    ranks.finish = finish;
    ranks.context = own;
    ellect_rank *rank;
    OK(ellect_rank_create(&ranks, &rank));
    return rank;
}

/* The rows of the example that each rank has, and its elements of x. */
static const int ROWS_OF[RANKS + 1] = {0, 2, 2, 5}, COLUMNS_OF[RANKS + 1] = {0, 1, 4, 4};

static ellect_matrix *rows_of(int rank, double scale) {
    int32_t row_ptr[6] = {0};
    double values[6];
    const int first = ROWS_OF[rank], rows = ROWS_OF[rank + 1] - first;
    for (int i = 0; i <= rows; i++) {
        row_ptr[i] = ROWS[first + i] - ROWS[first];
    }
    for (int k = 0; k < row_ptr[rows]; k++) {
        values[k] = scale * VALUES[ROWS[first] + k];
    }
    ellect_csr csr = example();
    csr.nrows = rows;
    csr.nnz = row_ptr[rows];
    csr.row_ptr = row_ptr;
    csr.col_idx = COLUMNS + ROWS[first];
    csr.values = values;
    csr.ownership = ELLECT_COPY;
    ellect_matrix *matrix;
    OK(ellect_matrix_create(&csr, &matrix));
    return matrix;
}

static void *on_rank(void *context) {
    struct own *own = context;
    ellect_rank *rank = rank_of(own, RANKS);
    const int first = ROWS_OF[own->rank], rows = ROWS_OF[own->rank + 1] - first;
    const int column = COLUMNS_OF[own->rank], columns = COLUMNS_OF[own->rank + 1] - column;
    ellect_matrix *matrix = rows_of(own->rank, 1), *doubled = rows_of(own->rank, 2);
    ellect_rank_operator *op;
    OK(ellect_rank_prepare(CPU, rank, matrix, columns, NULL, &op));
    ellect_rank_info info = {0};
    info.struct_size = sizeof info;
    OK(ellect_rank_describe(op, &info));
    CHECK(info.nrows == 5 && info.ncols == 4 && info.own_rows == rows);
    CHECK(info.own_columns == columns && strlen(info.candidate) > 2);

    double y[5];
    OK(ellect_rank_apply(op, 1.0, X + column, columns, 0.0, y, rows));
    for (int i = 0; i < rows; i++) {
        CHECK(y[i] == PRODUCT[first + i]);
    }
    OK(ellect_rank_update(op, doubled));
    OK(ellect_rank_apply(op, 1.0, X + column, columns, 1.0, y, rows));
    for (int i = 0; i < rows; i++) {
        CHECK(y[i] == 3 * PRODUCT[first + i]);
    }
    double sums[2] = {1, own->rank};
    OK(ellect_rank_sum(rank, sums, 2));
    CHECK(sums[0] == 3 && sums[1] == 3);

    /* Rank 2 makes mistakes; rank 1 owns what rank 0 needs and needs nothing itself. */
    ellect_status wanted = own->rank == 2 ? ELLECT_SHAPE : ELLECT_OK;
    CHECK(ellect_rank_apply(op, 1.0, X, columns + (own->rank == 2), 0.0, y, rows) == wanted);
    wanted = own->rank == 2 ? ELLECT_NULL_POINTER : ELLECT_OK;
    CHECK(ellect_rank_apply(op, 1.0, X, columns, 0.0, own->rank == 2 ? NULL : y, rows) == wanted);
    ellect_workload workload = {0};
    workload.struct_size = sizeof workload;
    workload.effort = own->rank == 2 ? 9 : 0;
    wanted = own->rank == 2 ? ELLECT_INVALID_ARGUMENT : ELLECT_EXCHANGE;
    ellect_rank_operator *none;
    FAILS(ellect_rank_prepare(CPU, rank, matrix, columns, &workload, &none), wanted);
    CHECK(none == NULL);
    FAILS(ellect_rank_prepare(CPU, rank, matrix, 4, NULL, &none), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "own 12 columns in all") != NULL);
    ellect_matrix_destroy(matrix);
    ellect_matrix_destroy(doubled);
    ellect_rank_destroy(rank);
    ellect_rank_operator_destroy(op);
    return NULL;
}

/* Failures that need no other rank. */
static void refusals(void) {
    struct own own = {&BOX, 0, 0, NULL, 0, {{NULL, 0, 0}}};
    ellect_ranks ranks = {0};
    ellect_rank *rank;
    FAILS(ellect_rank_create(NULL, &rank), ELLECT_NULL_POINTER);
    FAILS(ellect_rank_create(&ranks, &rank), ELLECT_INVALID_ARGUMENT);
    ranks.struct_size = sizeof ranks;
    FAILS(ellect_rank_create(&ranks, &rank), ELLECT_NULL_POINTER);
    ranks.exchange = begin;
    FAILS(ellect_rank_create(&ranks, &rank), ELLECT_INVALID_ARGUMENT);
    ranks.size = -1;
    FAILS(ellect_rank_create(&ranks, &rank), ELLECT_INVALID_ARGUMENT);
    CHECK(rank == NULL);

    rank = rank_of(&own, 2);
    ellect_matrix *matrix = rows_of(0, 1);
    ellect_rank_operator *op;
    FAILS(ellect_rank_prepare(CPU, NULL, matrix, -1, NULL, &op), ELLECT_NULL_POINTER);
    FAILS(ellect_rank_prepare(CPU, rank, matrix, -1, NULL, &op), ELLECT_EXCHANGE);
    CHECK(strstr(ellect_last_error_message(), "rank 0: the exchange failed: the callback") != NULL);
    own.left = 0;
    double sum = 1;
    FAILS(ellect_rank_sum(rank, &sum, 1), ELLECT_EXCHANGE);
    CHECK(strstr(ellect_last_error_message(), "exchange returned 5") != NULL);
    FAILS(ellect_rank_sum(rank, NULL, 1), ELLECT_NULL_POINTER);
    FAILS(ellect_rank_apply(NULL, 1.0, X, 4, 0.0, &sum, 1), ELLECT_NULL_POINTER);
    FAILS(ellect_rank_describe(NULL, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_rank_update(NULL, matrix), ELLECT_NULL_POINTER);
    ellect_matrix_destroy(matrix);
    ellect_rank_destroy(rank);
    ellect_rank_destroy(NULL);
    ellect_rank_operator_destroy(NULL);
}

int main(void) {
    OK(ellect_tuner_open("cpu", NULL, &CPU));
    struct own owns[RANKS];
    pthread_t threads[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        const struct own own = {&BOX, rank, -1, NULL, 0, {{NULL, 0, 0}}};
        owns[rank] = own;
        CHECK(pthread_create(&threads[rank], NULL, on_rank, &owns[rank]) == 0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(pthread_join(threads[rank], NULL) == 0);
    }
    refusals();
    ellect_tuner_destroy(CPU);
    return 0;
}
