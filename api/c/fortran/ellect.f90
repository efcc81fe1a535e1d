! Fortran interface of ellect: the functions of ellect.h, its constants and its descriptors.
!
! Handles are type(c_ptr). Indices count from 0, as in C. Texts passed in end with c_null_char;
! ellect_text copies a text that comes out. ellect_multiply and ellect_multiply_transposed are
! ellect_apply and ellect_apply_transposed for arrays of Fortran.
module ellect
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer(c_int32_t), parameter :: ELLECT_OK = 0, ELLECT_NULL_POINTER = 1, &
        ELLECT_INVALID_ARGUMENT = 2, ELLECT_SHAPE = 3, ELLECT_INVALID_MATRIX = 4, ELLECT_LIMIT = 5, &
        ELLECT_PATTERN_CHANGED = 6, ELLECT_REFUSED = 7, ELLECT_WRONG_PRODUCT = 8, &
        ELLECT_UNKNOWN_DEVICE = 9, ELLECT_ABSENT_DEVICE = 10, ELLECT_DEVICE_UNAVAILABLE = 11, &
        ELLECT_OUT_OF_MEMORY = 12, ELLECT_DEVICE_FAILED = 13, ELLECT_UNSUPPORTED = 14, &
        ELLECT_WISDOM = 15, ELLECT_IO = 16, ELLECT_INTERNAL = 17, ELLECT_OTHER = 18, &
        ELLECT_EXCHANGE = 19
    integer(c_int32_t), parameter :: ELLECT_I32 = 1, ELLECT_I64 = 2, ELLECT_F32 = 1, ELLECT_F64 = 2
    integer(c_int32_t), parameter :: ELLECT_HOST = 0, ELLECT_DEVICE = 1
    integer(c_int32_t), parameter :: ELLECT_BORROW = 0, ELLECT_COPY = 1
    integer(c_int32_t), parameter :: ELLECT_CHECK = 0, ELLECT_TRUST = 1
    integer(c_int32_t), parameter :: ELLECT_PREDICT = 0, ELLECT_ESTIMATE = 1, ELLECT_MEASURE = 2, &
        ELLECT_EXHAUSTIVE = 3
    integer(c_int32_t), parameter :: ELLECT_ORIGINAL = 0, ELLECT_PERMUTED = 1
    integer(c_int32_t), parameter :: ELLECT_COLUMN_MAJOR = 0, ELLECT_ROW_MAJOR = 1
    integer(c_int32_t), parameter :: ELLECT_DOT_X = 0, ELLECT_DOT_Y = 1, ELLECT_DOT_Z = 2

    ! Set struct_size of each descriptor to c_sizeof of it.
    type, bind(c) :: ellect_csr
        integer(c_size_t) :: struct_size = 0
        integer(c_int64_t) :: nrows = 0, ncols = 0, nnz = 0
        type(c_ptr) :: row_ptr = c_null_ptr, col_idx = c_null_ptr, values = c_null_ptr
        integer(c_int32_t) :: row_ptr_type = ELLECT_I32, col_idx_type = ELLECT_I32
        integer(c_int32_t) :: value_type = ELLECT_F64, memory = ELLECT_HOST
        integer(c_int32_t) :: ownership = ELLECT_BORROW, check = ELLECT_CHECK
        type(c_ptr) :: stream = c_null_ptr
    end type

    type, bind(c) :: ellect_workload
        integer(c_size_t) :: struct_size = 0
        integer(c_int64_t) :: spmvs = 0, updates = 0, memory_limit = 0
        real(c_double) :: budget_s = 0
        integer(c_int32_t) :: effort = ELLECT_PREDICT, basis = ELLECT_ORIGINAL, verify = 0, &
            no_trials = 0
        integer(c_int64_t) :: vectors = 0, transposed = 0
    end type

    ! with, results, z and w are the c_loc of arrays.
    type, bind(c) :: ellect_fused
        integer(c_size_t) :: struct_size = 0
        type(c_ptr) :: with = c_null_ptr
        integer(c_int32_t) :: dots = 0, transposed = 0
        type(c_ptr) :: results = c_null_ptr, z = c_null_ptr
        integer(c_int64_t) :: z_len = 0
        real(c_double) :: gamma = 0
        type(c_ptr) :: w = c_null_ptr
        integer(c_int64_t) :: w_len = 0
    end type

    type, bind(c) :: ellect_operator_info
        integer(c_size_t) :: struct_size = 0
        integer(c_int64_t) :: nrows = 0, ncols = 0, nnz = 0, bytes = 0
        type(c_ptr) :: candidate = c_null_ptr
        integer(c_int32_t) :: value_type = 0, memory = 0
    end type

    type, bind(c) :: ellect_tuner_options
        integer(c_size_t) :: struct_size = 0
        type(c_ptr) :: data_folder = c_null_ptr, model_folder = c_null_ptr, &
            wisdom_folder = c_null_ptr
    end type

    interface
        integer(c_int32_t) function ellect_last_error() bind(c)
            import :: c_int32_t
        end function
        type(c_ptr) function ellect_last_error_message() bind(c)
            import :: c_ptr
        end function
        type(c_ptr) function ellect_last_error_remedy() bind(c)
            import :: c_ptr
        end function
        type(c_ptr) function ellect_status_name(status) bind(c)
            import :: c_ptr, c_int32_t
            integer(c_int32_t), value :: status
        end function
        type(c_ptr) function ellect_version() bind(c)
            import :: c_ptr
        end function

        ! options is the c_loc of an ellect_tuner_options, or c_null_ptr.
        integer(c_int32_t) function ellect_tuner_open(device, options, tuner) bind(c)
            import :: c_int32_t, c_ptr, c_char
            character(kind=c_char), intent(in) :: device(*)
            type(c_ptr), value :: options
            type(c_ptr), intent(out) :: tuner
        end function
        integer(c_int32_t) function ellect_tuner_warnings_json(tuner, json) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: tuner
            type(c_ptr), intent(out) :: json
        end function
        subroutine ellect_tuner_destroy(tuner) bind(c)
            import :: c_ptr
            type(c_ptr), value :: tuner
        end subroutine

        integer(c_int32_t) function ellect_matrix_create(csr, matrix) bind(c)
            import :: c_int32_t, c_ptr, ellect_csr
            type(ellect_csr), intent(in) :: csr
            type(c_ptr), intent(out) :: matrix
        end function
        integer(c_int32_t) function ellect_matrix_read(path, value_type, matrix) bind(c)
            import :: c_int32_t, c_ptr, c_char
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int32_t), value :: value_type
            type(c_ptr), intent(out) :: matrix
        end function
        integer(c_int32_t) function ellect_matrix_csr(matrix, csr) bind(c)
            import :: c_int32_t, c_ptr, ellect_csr
            type(c_ptr), value :: matrix
            type(ellect_csr), intent(inout) :: csr
        end function
        subroutine ellect_matrix_destroy(matrix) bind(c)
            import :: c_ptr
            type(c_ptr), value :: matrix
        end subroutine

        integer(c_int32_t) function ellect_recommend_json(tuner, matrix, workload, json) bind(c)
            import :: c_int32_t, c_ptr, ellect_workload
            type(c_ptr), value :: tuner, matrix
            type(ellect_workload), intent(in) :: workload
            type(c_ptr), intent(out) :: json
        end function
        integer(c_int32_t) function ellect_prepare(tuner, matrix, workload, op) bind(c)
            import :: c_int32_t, c_ptr, ellect_workload
            type(c_ptr), value :: tuner, matrix
            type(ellect_workload), intent(in) :: workload
            type(c_ptr), intent(out) :: op
        end function
        ! x and y are the c_loc of vectors of the operator's type.
        integer(c_int32_t) function ellect_apply(op, alpha, x, x_len, beta, y, y_len) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
        end function
        integer(c_int32_t) function ellect_apply_device(op, alpha, x, x_len, beta, y, y_len, stream) &
                bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y, stream
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
        end function
        integer(c_int32_t) function ellect_apply_fused(op, alpha, x, x_len, beta, y, y_len, fused) &
                bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr, ellect_fused
            type(c_ptr), value :: op, x, y
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
            type(ellect_fused), intent(in) :: fused
        end function
        integer(c_int32_t) function ellect_apply_fused_device(op, alpha, x, x_len, beta, y, y_len, &
                fused, stream) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr, ellect_fused
            type(c_ptr), value :: op, x, y, stream
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
            type(ellect_fused), intent(in) :: fused
        end function
        integer(c_int32_t) function ellect_apply_many(op, vectors, alpha, x, x_leading, x_order, &
                beta, y, y_leading, y_order) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y
            integer(c_int64_t), value :: vectors, x_leading, y_leading
            integer(c_int32_t), value :: x_order, y_order
            real(c_double), value :: alpha, beta
        end function
        integer(c_int32_t) function ellect_apply_transposed(op, alpha, x, x_len, beta, y, &
                y_len) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
        end function
        integer(c_int32_t) function ellect_apply_transposed_device(op, alpha, x, x_len, beta, y, &
                y_len, stream) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y, stream
            real(c_double), value :: alpha, beta
            integer(c_int64_t), value :: x_len, y_len
        end function
        integer(c_int32_t) function ellect_apply_many_transposed(op, vectors, alpha, x, x_leading, &
                x_order, beta, y, y_leading, y_order) bind(c)
            import :: c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: op, x, y
            integer(c_int64_t), value :: vectors, x_leading, y_leading
            integer(c_int32_t), value :: x_order, y_order
            real(c_double), value :: alpha, beta
        end function
        integer(c_int32_t) function ellect_update_values(op, values, count) bind(c)
            import :: c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: op, values
            integer(c_int64_t), value :: count
        end function
        integer(c_int32_t) function ellect_update_values_device(op, values, count, stream) bind(c)
            import :: c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: op, values, stream
            integer(c_int64_t), value :: count
        end function
        integer(c_int32_t) function ellect_update_matrix(op, matrix) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: op, matrix
        end function
        integer(c_int32_t) function ellect_permutation(op, order, len) bind(c)
            import :: c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: op
            type(c_ptr), intent(out) :: order
            integer(c_int64_t), intent(out) :: len
        end function
        integer(c_int32_t) function ellect_choice_json(op, json) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: op
            type(c_ptr), intent(out) :: json
        end function
        integer(c_int32_t) function ellect_operator_describe(op, info) bind(c)
            import :: c_int32_t, c_ptr, ellect_operator_info
            type(c_ptr), value :: op
            type(ellect_operator_info), intent(inout) :: info
        end function
        subroutine ellect_operator_destroy(op) bind(c)
            import :: c_ptr
            type(c_ptr), value :: op
        end subroutine
        subroutine ellect_string_destroy(text) bind(c)
            import :: c_ptr
            type(c_ptr), value :: text
        end subroutine
    end interface

    ! Computes y = alpha A x + beta y for arrays of the operator's type; returns the status. The
    ! columns of matrices are vectors; other sizes than the operator's are ELLECT_SHAPE.
    interface ellect_multiply
        module procedure multiply_f32, multiply_f64, multiply_many_f32, multiply_many_f64
    end interface
    ! Computes y = alpha A^T x + beta y likewise, if transposed of the workload was over 0.
    interface ellect_multiply_transposed
        module procedure turned_f32, turned_f64, turned_many_f32, turned_many_f64
    end interface
    private :: multiply_f32, multiply_f64, multiply_many_f32, multiply_many_f64, turned_f32, &
        turned_f64, turned_many_f32, turned_many_f64, fits

contains

    integer(c_int32_t) function multiply_f32(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_float), intent(in) :: alpha, beta
        real(c_float), intent(in), target, contiguous :: x(:)
        real(c_float), intent(inout), target, contiguous :: y(:)
        status = ellect_apply(op, real(alpha, c_double), c_loc(x), size(x, kind=c_int64_t), &
            real(beta, c_double), c_loc(y), size(y, kind=c_int64_t))
    end function

    integer(c_int32_t) function multiply_f64(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_double), intent(in) :: alpha, beta
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        status = ellect_apply(op, alpha, c_loc(x), size(x, kind=c_int64_t), beta, c_loc(y), &
            size(y, kind=c_int64_t))
    end function

    integer(c_int32_t) function multiply_many_f32(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_float), intent(in) :: alpha, beta
        real(c_float), intent(in), target, contiguous :: x(:, :)
        real(c_float), intent(inout), target, contiguous :: y(:, :)
        status = fits(op, shape(x, c_int64_t), shape(y, c_int64_t))
        if (status == ELLECT_OK) status = ellect_apply_many(op, size(x, 2, c_int64_t), &
            real(alpha, c_double), c_loc(x), 0_c_int64_t, ELLECT_COLUMN_MAJOR, &
            real(beta, c_double), c_loc(y), 0_c_int64_t, ELLECT_COLUMN_MAJOR)
    end function

    integer(c_int32_t) function multiply_many_f64(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_double), intent(in) :: alpha, beta
        real(c_double), intent(in), target, contiguous :: x(:, :)
        real(c_double), intent(inout), target, contiguous :: y(:, :)
        status = fits(op, shape(x, c_int64_t), shape(y, c_int64_t))
        if (status == ELLECT_OK) status = ellect_apply_many(op, size(x, 2, c_int64_t), alpha, &
            c_loc(x), 0_c_int64_t, ELLECT_COLUMN_MAJOR, beta, c_loc(y), 0_c_int64_t, &
            ELLECT_COLUMN_MAJOR)
    end function

    integer(c_int32_t) function turned_f32(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_float), intent(in) :: alpha, beta
        real(c_float), intent(in), target, contiguous :: x(:)
        real(c_float), intent(inout), target, contiguous :: y(:)
        status = ellect_apply_transposed(op, real(alpha, c_double), c_loc(x), &
            size(x, kind=c_int64_t), real(beta, c_double), c_loc(y), size(y, kind=c_int64_t))
    end function

    integer(c_int32_t) function turned_f64(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_double), intent(in) :: alpha, beta
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        status = ellect_apply_transposed(op, alpha, c_loc(x), size(x, kind=c_int64_t), beta, &
            c_loc(y), size(y, kind=c_int64_t))
    end function

    integer(c_int32_t) function turned_many_f32(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_float), intent(in) :: alpha, beta
        real(c_float), intent(in), target, contiguous :: x(:, :)
        real(c_float), intent(inout), target, contiguous :: y(:, :)
        status = fits(op, shape(y, c_int64_t), shape(x, c_int64_t))
        if (status == ELLECT_OK) status = ellect_apply_many_transposed(op, size(x, 2, c_int64_t), &
            real(alpha, c_double), c_loc(x), 0_c_int64_t, ELLECT_COLUMN_MAJOR, &
            real(beta, c_double), c_loc(y), 0_c_int64_t, ELLECT_COLUMN_MAJOR)
    end function

    integer(c_int32_t) function turned_many_f64(op, alpha, x, beta, y) result(status)
        type(c_ptr), intent(in) :: op
        real(c_double), intent(in) :: alpha, beta
        real(c_double), intent(in), target, contiguous :: x(:, :)
        real(c_double), intent(inout), target, contiguous :: y(:, :)
        status = fits(op, shape(y, c_int64_t), shape(x, c_int64_t))
        if (status == ELLECT_OK) status = ellect_apply_many_transposed(op, size(x, 2, c_int64_t), &
            alpha, c_loc(x), 0_c_int64_t, ELLECT_COLUMN_MAJOR, beta, c_loc(y), 0_c_int64_t, &
            ELLECT_COLUMN_MAJOR)
    end function

    ! Checks that vectors in columns fit an operator.
    integer(c_int32_t) function fits(op, of_x, of_y) result(status)
        type(c_ptr), intent(in) :: op
        integer(c_int64_t), intent(in) :: of_x(2), of_y(2)
        type(ellect_operator_info) :: info
        info%struct_size = c_sizeof(info)
        status = ellect_operator_describe(op, info)
        if (status /= ELLECT_OK) return
        if (of_x(1) /= info%ncols .or. of_y(1) /= info%nrows .or. of_x(2) /= of_y(2)) &
            status = ELLECT_SHAPE
    end function

    ! Copies a text of the library, of ellect_last_error_message() for instance.
    function ellect_text(text) result(copy)
        type(c_ptr), intent(in) :: text
        character(len=:), allocatable :: copy
        character(kind=c_char), pointer :: letters(:)
        integer(c_size_t) :: i, length
        interface
            integer(c_size_t) function strlen(text) bind(c)
                import :: c_size_t, c_ptr
                type(c_ptr), value :: text
            end function
        end interface
        if (.not. c_associated(text)) then
            copy = ''
            return
        end if
        length = strlen(text)
        call c_f_pointer(text, letters, [length])
        allocate (character(len=length) :: copy)
        do i = 1, length
            copy(i:i) = letters(i)
        end do
    end function

end module
