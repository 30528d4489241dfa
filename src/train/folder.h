/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - the folder of a run at its start. */
#ifndef HS_TRAIN_FOLDER_H
#define HS_TRAIN_FOLDER_H

struct err;
struct trainer;

/* run_folder_open(), and run_folder_begin() before the first file of the run is written. A run that
 * goes on does not end because its disk is full: its number as a coordinator must be in the folder
 * before any worker hears of it, so room is waited for; later files are missed or tried again. */
int train_folder_open(struct trainer *t, const char **resume_p, struct err *e);
int train_folder_begin(struct trainer *t, struct err *e);

#endif
