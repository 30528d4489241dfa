/* SPDX-License-Identifier: Apache-2.0 */
/* mlflow.h - the numbers of a run as MLflow keeps them in files: `mlflow ui --backend-store-uri
 * OUTPUT/mlruns` shows them, and nothing has to be installed here.
 *
 * DIR/0/ is the experiment, DIR/0/RUN/ the run, with meta.yaml, params/, tags/ and metrics/NAME: a
 * line "milliseconds value step" for each value. Not thread-safe. */
#ifndef HS_REPORT_MLFLOW_H
#define HS_REPORT_MLFLOW_H

#include <stdint.h>

struct err;
struct mlflow;

/* `name`: of the run. `resume_step` < 0: a new run; else the run of the folder goes on, and its
 * lines of later steps are cut off. */
int mlflow_open(const char *dir, const char *experiment, const char *name, int64_t resume_step,
		struct mlflow **m_p, struct err *e);
int mlflow_param(struct mlflow *m, const char *key, const char *value, struct err *e);
/* NaN and infinities are written as MLflow reads them. */
int mlflow_metric(struct mlflow *m, const char *key, int64_t step, double value, struct err *e);
/* Marks the run as finished, or as failed, and releases it; NULL is allowed. */
void mlflow_close(struct mlflow *m, int failed);

#endif
