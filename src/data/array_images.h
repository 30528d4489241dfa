/* SPDX-License-Identifier: Apache-2.0 */
/* array_images.h - a folder of PNG and JPEG images, in a folder for each class, as torchvision's
 * ImageFolder has it: the classes are numbered by name, the images of one by name. A folder that
 * holds images itself, and no folders, has pixels but no classes. */
#ifndef HS_DATA_ARRAY_IMAGES_H
#define HS_DATA_ARRAY_IMAGES_H

#include "data/array.h"

int images_open(const char *path, const struct array_wish *w, struct array **a_p, struct err *e);

#endif
