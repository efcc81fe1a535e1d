/* Solves A x = b with PETSc's KSP, once with PETSc's own matrix (MATAIJ) and once with a MATSHELL that
 * multiplies by an operator of ellect, and compares the solutions. The matrix comes from a file; one
 * process. usage: petsc_shell FILE [PETSC OPTIONS] */
#include <petscksp.h>

#include <ellect.h>

static PetscErrorCode failed(ellect_status status) {
    if (status != ELLECT_OK) {
        SETERRQ(PETSC_COMM_SELF, PETSC_ERR_LIB, "%s", ellect_last_error_message());
    }
    return 0;
}

/* y = A x for the shell, whose context is the operator. */
static PetscErrorCode multiply(Mat shell, Vec x, Vec y) {
    ellect_operator *a;
    const PetscScalar *x_values;
    PetscScalar *y_values;
    PetscInt x_len, y_len;
    PetscFunctionBeginUser;
    PetscCall(MatShellGetContext(shell, &a));
    PetscCall(VecGetLocalSize(x, &x_len));
    PetscCall(VecGetLocalSize(y, &y_len));
    PetscCall(VecGetArrayRead(x, &x_values));
    PetscCall(VecGetArrayWrite(y, &y_values));
    PetscCall(failed(ellect_apply(a, 1.0, x_values, x_len, 0.0, y_values, y_len)));
    PetscCall(VecRestoreArrayWrite(y, &y_values));
    PetscCall(VecRestoreArrayRead(x, &x_values));
    PetscFunctionReturn(0);
}

/* Makes PETSc's matrix from the arrays of ellect's. */
static PetscErrorCode aij_of(const ellect_csr *csr, Mat *aij) {
    const int64_t *row_ptr = csr->row_ptr;
    const int32_t *col_idx = csr->col_idx;
    const double *values = csr->values;
    PetscInt *lengths, *columns;
    PetscFunctionBeginUser;
    PetscCall(PetscMalloc2(csr->nrows, &lengths, csr->ncols, &columns));
    for (PetscInt row = 0; row < csr->nrows; row++) {
        lengths[row] = (PetscInt)(row_ptr[row + 1] - row_ptr[row]);
    }
    PetscCall(MatCreateSeqAIJ(PETSC_COMM_SELF, (PetscInt)csr->nrows, (PetscInt)csr->ncols, 0, lengths,
                              aij));
    for (PetscInt row = 0; row < csr->nrows; row++) {
        for (PetscInt k = 0; k < lengths[row]; k++) {
            columns[k] = col_idx[row_ptr[row] + k];
        }
        PetscCall(MatSetValues(*aij, 1, &row, lengths[row], columns, values + row_ptr[row],
                               INSERT_VALUES));
    }
    PetscCall(MatAssemblyBegin(*aij, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(*aij, MAT_FINAL_ASSEMBLY));
    PetscCall(PetscFree2(lengths, columns));
    PetscFunctionReturn(0);
}

/* Solves A x = b; the preconditioner comes from `preconditioner`. */
static PetscErrorCode solve(Mat a, Mat preconditioner, Vec b, Vec x, PetscInt *iterations) {
    KSP ksp;
    PC pc;
    KSPConvergedReason reason;
    PetscFunctionBeginUser;
    PetscCall(KSPCreate(PETSC_COMM_SELF, &ksp));
    PetscCall(KSPSetOperators(ksp, a, preconditioner));
    PetscCall(KSPSetType(ksp, KSPCG));
    PetscCall(KSPGetPC(ksp, &pc));
    PetscCall(PCSetType(pc, PCJACOBI));
    PetscCall(KSPSetTolerances(ksp, 1e-12, 1e-50, 1e5, 10000));
    PetscCall(KSPSetFromOptions(ksp));
    PetscCall(KSPSolve(ksp, b, x));
    PetscCall(KSPGetConvergedReason(ksp, &reason));
    PetscCheck(reason > 0, PETSC_COMM_SELF, PETSC_ERR_NOT_CONVERGED, "no convergence: %s",
               KSPConvergedReasons[reason]);
    PetscCall(KSPGetIterationNumber(ksp, iterations));
    PetscCall(KSPDestroy(&ksp));
    PetscFunctionReturn(0);
}

int main(int argc, char **argv) {
    ellect_tuner *tuner;
    ellect_matrix *matrix;
    ellect_operator *a;
    ellect_csr csr = {0};
    ellect_workload workload = {0};
    Mat aij, shell;
    Vec b, x_aij, x_shell;
    PetscInt own, theirs;
    PetscReal difference, norm;

    if (argc < 2) {
        fprintf(stderr, "usage: petsc_shell FILE [PETSC OPTIONS]\n");
        return 2;
    }
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(failed(ellect_tuner_open("cpu", NULL, &tuner)));
    PetscCall(failed(ellect_matrix_read(argv[1], ELLECT_F64, &matrix)));
    csr.struct_size = sizeof csr;
    PetscCall(failed(ellect_matrix_csr(matrix, &csr)));
    PetscCall(aij_of(&csr, &aij));
    workload.struct_size = sizeof workload;
    workload.spmvs = 1000000;
    PetscCall(failed(ellect_prepare(tuner, matrix, &workload, &a)));
    PetscCall(MatCreateShell(PETSC_COMM_SELF, (PetscInt)csr.nrows, (PetscInt)csr.ncols,
                             (PetscInt)csr.nrows, (PetscInt)csr.ncols, a, &shell));
    PetscCall(MatShellSetOperation(shell, MATOP_MULT, (void (*)(void))multiply));

    PetscCall(MatCreateVecs(aij, &x_aij, &b));
    PetscCall(VecDuplicate(x_aij, &x_shell));
    PetscCall(VecSet(b, 1.0));
    PetscCall(solve(aij, aij, b, x_aij, &theirs));
    PetscCall(solve(shell, aij, b, x_shell, &own));
    PetscCall(VecNorm(x_aij, NORM_2, &norm));
    PetscCall(VecAXPY(x_shell, -1.0, x_aij));
    PetscCall(VecNorm(x_shell, NORM_2, &difference));
    PetscCall(PetscPrintf(PETSC_COMM_SELF,
                          "MATAIJ %d iterations, MATSHELL %d, relative difference %.1e\n", (int)theirs,
                          (int)own, (double)(difference / norm)));

    PetscCall(VecDestroy(&b));
    PetscCall(VecDestroy(&x_aij));
    PetscCall(VecDestroy(&x_shell));
    PetscCall(MatDestroy(&shell));
    PetscCall(MatDestroy(&aij));
    PetscCall(PetscFinalize());
    ellect_operator_destroy(a);
    ellect_matrix_destroy(matrix);
    ellect_tuner_destroy(tuner);
    return norm > 0 && difference <= 1e-8 * norm ? 0 : 1;
}
