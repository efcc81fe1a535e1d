/* Wrong arguments of every function, answers as JSON, folders. usage: refusals FOLDER */
#include "check.h"

static void statuses_have_names(void) {
    for (ellect_status status = ELLECT_OK; status <= ELLECT_EXCHANGE; status++) {
        const char *name = ellect_status_name(status);
        CHECK(strncmp(name, "ELLECT_", 7) == 0);
        CHECK(status == ELLECT_OTHER || strcmp(name, "ELLECT_OTHER") != 0);
    }
    CHECK(strcmp(ellect_status_name(ELLECT_SHAPE), "ELLECT_SHAPE") == 0);
    CHECK(strcmp(ellect_status_name(-1), "ELLECT_OTHER") == 0);
    CHECK(strcmp(ellect_version(), VERSION) == 0);
    CHECK(ellect_last_error() == ELLECT_OK && ellect_last_error_remedy()[0] == '\0');
}

static void null_is_refused(void) {
    ellect_csr csr = example();
    ellect_operator *op = prepared(csr), *made;
    ellect_tuner *opened;
    ellect_matrix *matrix, *none;
    ellect_operator_info info = {0};
    const uint32_t *order;
    int64_t len;
    char *json;
    double y[5];
    info.struct_size = sizeof info;
    OK(ellect_matrix_create(&csr, &matrix));
    FAILS(ellect_tuner_open(NULL, NULL, &opened), ELLECT_NULL_POINTER);
    FAILS(ellect_tuner_open("cpu", NULL, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_tuner_warnings_json(NULL, &json), ELLECT_NULL_POINTER);
    FAILS(ellect_tuner_warnings_json(CPU, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_matrix_create(NULL, &none), ELLECT_NULL_POINTER);
    FAILS(ellect_matrix_create(&csr, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_matrix_read(NULL, ELLECT_F64, &none), ELLECT_NULL_POINTER);
    FAILS(ellect_matrix_csr(NULL, &csr), ELLECT_NULL_POINTER);
    FAILS(ellect_matrix_csr(matrix, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_recommend_json(NULL, matrix, NULL, &json), ELLECT_NULL_POINTER);
    FAILS(ellect_recommend_json(CPU, NULL, NULL, &json), ELLECT_NULL_POINTER);
    FAILS(ellect_recommend_json(CPU, matrix, NULL, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_prepare(NULL, matrix, NULL, &made), ELLECT_NULL_POINTER);
    FAILS(ellect_prepare(CPU, NULL, NULL, &made), ELLECT_NULL_POINTER);
    FAILS(ellect_prepare(CPU, matrix, NULL, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_apply(NULL, 1.0, X, 4, 0.0, y, 5), ELLECT_NULL_POINTER);
    FAILS(ellect_apply(op, 1.0, NULL, 4, 0.0, y, 5), ELLECT_NULL_POINTER);
    FAILS(ellect_apply(op, 1.0, X, 4, 0.0, NULL, 5), ELLECT_NULL_POINTER);
    FAILS(ellect_apply_device(NULL, 1.0, X, 4, 0.0, y, 5, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_update_values(NULL, VALUES, 6), ELLECT_NULL_POINTER);
    FAILS(ellect_update_values(op, NULL, 6), ELLECT_NULL_POINTER);
    FAILS(ellect_update_values_device(NULL, VALUES, 6, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_update_matrix(NULL, matrix), ELLECT_NULL_POINTER);
    FAILS(ellect_update_matrix(op, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_permutation(NULL, &order, &len), ELLECT_NULL_POINTER);
    FAILS(ellect_permutation(op, NULL, &len), ELLECT_NULL_POINTER);
    FAILS(ellect_permutation(op, &order, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_choice_json(NULL, &json), ELLECT_NULL_POINTER);
    FAILS(ellect_choice_json(op, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_operator_describe(NULL, &info), ELLECT_NULL_POINTER);
    FAILS(ellect_operator_describe(op, NULL), ELLECT_NULL_POINTER);
    ellect_operator_destroy(op);
    ellect_matrix_destroy(matrix);
    ellect_operator_destroy(NULL);
    ellect_matrix_destroy(NULL);
    ellect_tuner_destroy(NULL);
    ellect_string_destroy(NULL);
}

/* Creates a matrix after one change of the descriptor, and expects a failure. */
#define REFUSED(change, status)                                \
    do {                                                       \
        ellect_csr csr = example();                            \
        ellect_matrix *matrix = (ellect_matrix *)&csr;         \
        change;                                                \
        FAILS(ellect_matrix_create(&csr, &matrix), status);    \
        CHECK(matrix == NULL);                                 \
    } while (0)

static void wrong_descriptors_are_refused(void) {
    const int32_t outside[] = {0, 4, 1, 0, 3, 2}, negative[] = {0, 2, -1, 0, 3, 2};
    const int32_t falling[] = {0, 3, 2, 3, 5, 6}, late[] = {1, 2, 3, 3, 5, 6};
    const int64_t wide[] = {0, (int64_t)1 << 40, 1, 0, 3, 2};
    REFUSED(csr.struct_size = 0, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.struct_size = sizeof csr - 1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.struct_size = (size_t)1 << 40, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.nrows = -1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.ncols = -1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.nnz = -1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.row_ptr_type = 0, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.col_idx_type = 3, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.value_type = 0, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.memory = 2, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.ownership = -1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.check = 2, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.row_ptr = NULL, ELLECT_NULL_POINTER);
    REFUSED(csr.col_idx = NULL, ELLECT_NULL_POINTER);
    REFUSED(csr.values = NULL, ELLECT_NULL_POINTER);
    REFUSED(csr.values = (const char *)VALUES + 1, ELLECT_INVALID_ARGUMENT);
    REFUSED(csr.nnz = INT64_MAX, ELLECT_SHAPE);
    REFUSED(csr.nnz = 5, ELLECT_INVALID_MATRIX);
    REFUSED(csr.ncols = (int64_t)1 << 32, ELLECT_INVALID_MATRIX);
    REFUSED(csr.row_ptr = falling, ELLECT_INVALID_MATRIX);
    REFUSED(csr.row_ptr = late, ELLECT_INVALID_MATRIX);
    REFUSED(csr.col_idx = outside, ELLECT_INVALID_MATRIX);
    REFUSED(csr.col_idx = negative, ELLECT_INVALID_MATRIX);
    REFUSED((csr.col_idx = outside, csr.ownership = ELLECT_COPY), ELLECT_INVALID_MATRIX);
    REFUSED((csr.col_idx = wide, csr.col_idx_type = ELLECT_I64), ELLECT_INVALID_MATRIX);
    if (!CUDA) {
        REFUSED(csr.memory = ELLECT_DEVICE, ELLECT_UNSUPPORTED);
    }
}

/* A program may be built with a newer header than the library. */
static void newer_descriptors_are_read_if_their_new_fields_are_zero(void) {
    struct {
        ellect_csr known;
        int64_t newer;
    } csr = {example(), 0};
    ellect_matrix *matrix;
    csr.known.struct_size = sizeof csr;
    OK(ellect_matrix_create(&csr.known, &matrix));
    ellect_matrix_destroy(matrix);
    csr.newer = 1;
    FAILS(ellect_matrix_create(&csr.known, &matrix), ELLECT_INVALID_ARGUMENT);
}

static void wrong_sums_are_refused(void) {
    ellect_operator *op = prepared(example());
    int32_t with[] = {ELLECT_DOT_Y, ELLECT_DOT_Y, ELLECT_DOT_Y, ELLECT_DOT_Y};
    double y[5], w[5] = {0}, results[4];
    ellect_fused fused = {0};
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, NULL), ELLECT_NULL_POINTER);
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "sizeof(ellect_fused)") != NULL);
    fused.struct_size = sizeof fused;
    FAILS(ellect_apply_fused(NULL, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_NULL_POINTER);
    FAILS(ellect_apply_fused(op, 1.0, X, 3, 0.0, y, 5, &fused), ELLECT_SHAPE);
    fused.dots = 1;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_NULL_POINTER);
    fused.with = with;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_NULL_POINTER);
    fused.results = results;
    OK(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused));
    fused.dots = -1;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    fused.dots = 4;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "at most 3") != NULL);
    fused.dots = 2;
    with[1] = 7;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "with[1] is 7") != NULL);
    with[1] = ELLECT_DOT_X;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "square") != NULL);
    with[1] = ELLECT_DOT_Z;
    fused.z_len = 5;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_NULL_POINTER);
    fused.z = VALUES;
    fused.z_len = 4;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_SHAPE);
    fused.z_len = -1;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    fused.dots = 1;
    fused.w = w;
    fused.w_len = 4;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_SHAPE);
    fused.w_len = 5;
    fused.results = w + 4;
    FAILS(ellect_apply_fused(op, 1.0, X, 4, 0.0, y, 5, &fused), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "results and w overlap") != NULL);
    fused.results = results;
    fused.transposed = 1;
    FAILS(ellect_apply_fused(op, 1.0, VALUES, 5, 0.0, y, 4, &fused), ELLECT_INVALID_ARGUMENT);
    fused.transposed = 0;
    FAILS(ellect_apply_fused_device(op, 1.0, X, 4, 0.0, y, 5, &fused, NULL),
          CUDA ? ELLECT_INVALID_ARGUMENT : ELLECT_UNSUPPORTED);
    ellect_operator_destroy(op);
}

static void wrong_vectors_are_refused(void) {
    ellect_operator *op = prepared(example());
    double y[9] = {0};
    FAILS(ellect_apply(op, 1.0, X, 3, 0.0, y, 5), ELLECT_SHAPE);
    FAILS(ellect_apply(op, 1.0, X, 4, 0.0, y, 6), ELLECT_SHAPE);
    FAILS(ellect_apply(op, 1.0, X, -4, 0.0, y, 5), ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply(op, 1.0, y + 4, 4, 0.0, y, 5), ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply(op, 1.0, (const char *)X + 4, 4, 0.0, y, 5), ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_update_values(op, VALUES, -1), ELLECT_INVALID_ARGUMENT);
    OK(ellect_apply(op, 1.0, y + 5, 4, 0.0, y, 5));
    const int32_t by_columns = ELLECT_COLUMN_MAJOR, by_rows = ELLECT_ROW_MAJOR;
    const int64_t huge = INT64_MAX;
    FAILS(ellect_apply_many(NULL, 1, 1.0, X, 0, by_columns, 0.0, y, 0, by_columns),
          ELLECT_NULL_POINTER);
    FAILS(ellect_apply_many(op, 1, 1.0, NULL, 0, by_columns, 0.0, y, 0, by_columns),
          ELLECT_NULL_POINTER);
    FAILS(ellect_apply_many(op, -1, 1.0, X, 0, by_columns, 0.0, y, 0, by_columns),
          ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply_many(op, 1, 1.0, X, 3, by_columns, 0.0, y, 0, by_columns),
          ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply_many(op, 1, 1.0, X, 0, by_columns, 0.0, y, -1, by_rows),
          ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply_many(op, 1, 1.0, X, 0, 2, 0.0, y, 0, by_columns), ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply_many(op, huge, 1.0, X, 0, by_columns, 0.0, y, 0, by_columns), ELLECT_SHAPE);
    FAILS(ellect_apply_many(op, 2, 1.0, X, huge, by_rows, 0.0, y, 0, by_columns), ELLECT_SHAPE);
    FAILS(ellect_apply_many(op, 1, 1.0, y + 4, 0, by_columns, 0.0, y, 0, by_columns),
          ELLECT_INVALID_ARGUMENT);
    /* The operator is on the host, or the build knows no GPU. */
    const ellect_status no_gpu = CUDA ? ELLECT_INVALID_ARGUMENT : ELLECT_UNSUPPORTED;
    FAILS(ellect_apply_device(op, 1.0, X, 4, 0.0, y, 5, NULL), no_gpu);
    FAILS(ellect_update_values_device(op, VALUES, 6, NULL), no_gpu);
    /* The operator was prepared without its transpose. */
    FAILS(ellect_apply_transposed(op, 1.0, VALUES, 5, 0.0, y, 4), ELLECT_INVALID_ARGUMENT);
    CHECK(strstr(ellect_last_error_message(), "`transposed` of ellect_workload") != NULL);
    FAILS(ellect_apply_many_transposed(op, 1, 1.0, VALUES, 0, by_columns, 0.0, y, 0, by_columns),
          ELLECT_INVALID_ARGUMENT);
    FAILS(ellect_apply_transposed_device(op, 1.0, VALUES, 5, 0.0, y, 4, NULL), no_gpu);
    FAILS(ellect_apply_transposed(NULL, 1.0, VALUES, 5, 0.0, y, 4), ELLECT_NULL_POINTER);
    ellect_operator_destroy(op);
}

/* Indices of 64 bits are taken, but not more columns than 32 bits count. */
static void too_many_columns_are_refused(void) {
    const int64_t wide_columns[] = {0, 2, 1, 0, (int64_t)1 << 32, 2};
    ellect_csr csr = example();
    ellect_matrix *matrix;
    csr.ncols = ((int64_t)1 << 32) + 1;
    csr.col_idx = wide_columns;
    csr.col_idx_type = ELLECT_I64;
    FAILS(ellect_matrix_create(&csr, &matrix), ELLECT_INVALID_MATRIX);
    CHECK(strstr(ellect_last_error_message(), "number of columns is 4294967297; at most 4294967295"));
}

static void wrong_workloads_are_refused(void) {
    ellect_csr csr = example();
    ellect_matrix *matrix;
    ellect_operator *op;
    OK(ellect_matrix_create(&csr, &matrix));
    for (int field = 0; field < 12; field++) {
        ellect_workload workload = {0};
        workload.struct_size = field == 0 ? 8 : sizeof workload;
        workload.spmvs = field == 1 ? -1 : 0;
        workload.updates = field == 2 ? -1 : 0;
        workload.memory_limit = field == 3 ? -1 : 0;
        workload.budget_s = field == 4 ? -1.0 : 0.0;
        workload.effort = field == 5 ? 4 : 0;
        workload.basis = field == 6 ? 2 : 0;
        workload.verify = field == 7 ? 2 : 0;
        workload.no_trials = field == 8 ? 2 : 0;
        workload.vectors = field == 9 ? -1 : field == 10 ? 1 << 20 : 0;
        workload.transposed = field == 11 ? -1 : 0;
        FAILS(ellect_prepare(CPU, matrix, &workload, &op), ELLECT_INVALID_ARGUMENT);
        CHECK(op == NULL);
    }
    /* A program with the first version of the header. */
    ellect_workload first = {0};
    first.struct_size = offsetof(ellect_workload, vectors);
    first.vectors = -1;
    OK(ellect_prepare(CPU, matrix, &first, &op));
    ellect_operator_destroy(op);
    ellect_matrix_destroy(matrix);
}

static void answers_are_json(void) {
    ellect_tuner *h200, *other;
    ellect_csr csr = example();
    ellect_matrix *matrix;
    ellect_operator *op;
    char *json;
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_tuner_open("h200", NULL, &h200));
    OK(ellect_recommend_json(h200, matrix, NULL, &json));
    CHECK(json[0] == '{' && strstr(json, "\"ranking\"") && strstr(json, "\"h200\""));
    ellect_string_destroy(json);
    ellect_workload workload = {0};
    workload.struct_size = sizeof workload;
    workload.effort = ELLECT_MEASURE;
    FAILS(ellect_recommend_json(h200, matrix, &workload, &json), ELLECT_ABSENT_DEVICE);
    CHECK(json == NULL);
    ellect_tuner_destroy(h200);
    ellect_matrix_destroy(matrix);
    FAILS(ellect_tuner_open("h300", NULL, &other), ELLECT_UNKNOWN_DEVICE);
    CHECK(strstr(ellect_last_error_message(), "h200") != NULL);
    FAILS(ellect_tuner_open("\xff", NULL, &other), ELLECT_INVALID_ARGUMENT);

    op = prepared(example());
    OK(ellect_choice_json(op, &json));
    CHECK(strstr(json, "\"choice\"") && strstr(json, "\"explanation\""));
    ellect_string_destroy(json);
    ellect_operator_destroy(op);
}

/* Measurements go to the named folder, and a file in its place is an error of the database. */
static void folders_are_used(const char *folder) {
    char made[4096], file[4096];
    snprintf(made, sizeof made, "%s/wisdom", folder);
    snprintf(file, sizeof file, "%s/a-file", folder);
    FILE *written = fopen(file, "w");
    CHECK(written && fputs("no matrix\n", written) >= 0 && fclose(written) == 0);
    ellect_tuner_options options = {0};
    ellect_tuner *tuner;
    ellect_csr csr = example();
    ellect_matrix *matrix;
    char *json;
    options.struct_size = sizeof options;
    options.data_folder = options.wisdom_folder = folder;
    OK(ellect_tuner_open("cpu", &options, &tuner));
    ellect_workload workload = {0};
    workload.struct_size = sizeof workload;
    workload.effort = ELLECT_MEASURE;
    workload.budget_s = 0.001;
    OK(ellect_matrix_create(&csr, &matrix));
    OK(ellect_recommend_json(tuner, matrix, &workload, &json));
    CHECK(strstr(json, "\"measured\"") != NULL);
    ellect_string_destroy(json);
    OK(ellect_tuner_warnings_json(tuner, &json));
    CHECK(strcmp(json, "[]") == 0);
    ellect_string_destroy(json);
    ellect_tuner_destroy(tuner);
    ellect_matrix_destroy(matrix);
    FILE *database = fopen(made, "r");
    CHECK(database != NULL);
    fclose(database);
    options.wisdom_folder = file;
    CHECK(ellect_tuner_open("cpu", &options, &tuner) != ELLECT_OK && tuner == NULL);
    FAILS(ellect_matrix_read(file, ELLECT_F64, &matrix), ELLECT_INVALID_MATRIX);
    FAILS(ellect_matrix_read(made, 3, &matrix), ELLECT_INVALID_ARGUMENT);
    snprintf(file, sizeof file, "%s/absent.mtx", folder);
    FAILS(ellect_matrix_read(file, ELLECT_F64, &matrix), ELLECT_IO);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: refusals FOLDER\n");
        return 2;
    }
    statuses_have_names();
    OK(ellect_tuner_open("cpu", NULL, &CPU));
    null_is_refused();
    wrong_descriptors_are_refused();
    newer_descriptors_are_read_if_their_new_fields_are_zero();
    wrong_vectors_are_refused();
    wrong_sums_are_refused();
    too_many_columns_are_refused();
    wrong_workloads_are_refused();
    answers_are_json();
    folders_are_used(argv[1]);
    ellect_tuner_destroy(CPU);
    return 0;
}
