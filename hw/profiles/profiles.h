/* SPDX-License-Identifier: BSD-2-Clause */
/* The models, a file each. */
#ifndef FL_HW_PROFILES_H
#define FL_HW_PROFILES_H

#include <errno.h>
#include "hw/profile.h"

extern const struct hca_profile hca_profile_mlx5;
extern const struct hca_profile hca_profile_rxe;
extern const struct hca_profile hca_profile_irdma;
extern const struct hca_profile hca_profile_bnxt_re;
extern const struct hca_profile hca_profile_mana;
extern const struct hca_profile hca_profile_efa;

/* What the runtime bounds, whatever the device it models: QPNs a process has (and SRQ numbers), keys in its table. */
#define PROFILE_MAX_QP 16367
#define PROFILE_MAX_MR 524287

#endif
