! Solves A x = b with conjugate gradients in Fortran, for the matrix (-1, 4, -1) of a line, and again
! after its values were replaced.
program cg
    use ellect
    implicit none
    integer, parameter :: n = 2000
    integer(c_int32_t), target :: row_ptr(n + 1), col_idx(3 * n)
    real(c_double), target :: values(3 * n)
    real(c_double) :: exact(n), b(n), x(n)
    type(c_ptr) :: tuner, matrix, a
    type(ellect_csr) :: csr
    type(ellect_workload) :: workload
    integer :: row, column, nnz, iterations

    ! Indices count from 0.
    nnz = 0
    do row = 1, n
        row_ptr(row) = nnz
        do column = max(1, row - 1), min(n, row + 1)
            nnz = nnz + 1
            col_idx(nnz) = column - 1
            values(nnz) = merge(4.0_c_double, -1.0_c_double, row == column)
        end do
    end do
    row_ptr(n + 1) = nnz

    csr%struct_size = c_sizeof(csr)
    csr%nrows = n
    csr%ncols = n
    csr%nnz = nnz
    csr%row_ptr = c_loc(row_ptr)
    csr%col_idx = c_loc(col_idx)
    csr%values = c_loc(values)
    workload%struct_size = c_sizeof(workload)
    workload%spmvs = 1000000
    workload%updates = 1
    workload%transposed = 1
    call check(ellect_tuner_open('cpu' // c_null_char, c_null_ptr, tuner))
    call check(ellect_matrix_create(csr, matrix))
    call check(ellect_prepare(tuner, matrix, workload, a))

    exact = [(real(mod(row, 7), c_double), row=1, n)]
    call check(ellect_multiply(a, 1.0_c_double, exact, 0.0_c_double, b))
    call solve(iterations)
    call report('first values')
    call check_many()
    call check_transposed()

    values = 3 * values
    call check(ellect_update_values(a, c_loc(values), int(nnz, c_int64_t)))
    b = 3 * b
    call solve(iterations)
    call report('new values')

    call ellect_operator_destroy(a)
    call ellect_matrix_destroy(matrix)
    call ellect_tuner_destroy(tuner)

contains

    ! Solves A x = b from x = 0.
    subroutine solve(iterations)
        integer, intent(out) :: iterations
        real(c_double), target :: r(n), p(n), q(n), pq
        real(c_double) :: rr, enough, alpha
        integer(c_int32_t), target :: with(1)
        integer(c_int64_t) :: length
        type(ellect_fused) :: fused
        length = n
        with = ELLECT_DOT_X
        fused%struct_size = c_sizeof(fused)
        fused%with = c_loc(with)
        fused%dots = 1
        fused%results = c_loc(pq)
        x = 0
        r = b
        p = b
        rr = dot_product(r, r)
        enough = 1e-24_c_double * rr
        do iterations = 0, 1000
            if (dot_product(r, r) <= enough) exit
            ! q = A p, with (q, p).
            call check(ellect_apply_fused(a, 1.0_c_double, c_loc(p), length, 0.0_c_double, c_loc(q), &
                length, fused))
            alpha = rr / pq
            x = x + alpha * p
            r = r - alpha * q
            p = r + dot_product(r, r) / rr * p
            rr = dot_product(r, r)
        end do
    end subroutine

    ! Multiplies the exact solution and its double at once.
    subroutine check_many()
        real(c_double) :: several(n, 2), products(n, 2)
        several(:, 1) = exact
        several(:, 2) = 2 * exact
        call check(ellect_multiply(a, 1.0_c_double, several, 0.0_c_double, products))
        if (any(abs(products(:, 1) - b) > 1e-9_c_double)) error stop 1
        if (any(abs(products(:, 2) - 2 * b) > 1e-9_c_double)) error stop 1
        if (ellect_multiply(a, 1.0_c_double, several(2:, :), 0.0_c_double, products) /= ELLECT_SHAPE) &
            error stop 1
    end subroutine

    ! Multiplies the exact solution by the transpose, which is the matrix itself.
    subroutine check_transposed()
        real(c_double) :: product(n), several(n, 2), products(n, 2)
        call check(ellect_multiply_transposed(a, 1.0_c_double, exact, 0.0_c_double, product))
        several(:, 1) = exact
        several(:, 2) = 2 * exact
        call check(ellect_multiply_transposed(a, 1.0_c_double, several, 0.0_c_double, products))
        if (any(abs(product - b) > 1e-9_c_double)) error stop 1
        if (any(abs(products(:, 2) - 2 * b) > 1e-9_c_double)) error stop 1
    end subroutine

    subroutine report(title)
        character(len=*), intent(in) :: title
        real(c_double) :: error
        error = maxval(abs(x - exact))
        print '(a, a, i0, a, es8.1)', title, ': ', iterations, ' iterations, largest error ', error
        if (.not. error < 1e-8_c_double) error stop 1
    end subroutine

    subroutine check(status)
        integer(c_int32_t), intent(in) :: status
        if (status == ELLECT_OK) return
        print '(a)', ellect_text(ellect_last_error_message())
        error stop 1
    end subroutine

end program
