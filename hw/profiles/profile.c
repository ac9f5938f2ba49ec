/* SPDX-License-Identifier: BSD-2-Clause */
/* The list of device models. */
#include <string.h>
#include "hw/profiles/profiles.h"

const struct hca_profile *const hca_profiles[] = {
	&hca_profile_mlx5,    &hca_profile_rxe,	 &hca_profile_irdma,
	&hca_profile_bnxt_re, &hca_profile_mana, &hca_profile_efa,
	NULL,
};

const struct hca_profile *hca_profile_find(const char *name)
{
	const struct hca_profile *const *p;

	for (p = hca_profiles; *p; p++)
		if (!strcmp((*p)->name, name))
			return *p;
	return NULL;
}
