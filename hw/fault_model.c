/* SPDX-License-Identifier: BSD-2-Clause */
/* The fault models, as data: see fault_model.h. */
#include "hw/fault_model.h"
#include <string.h>
#include "util/provoke.h"

static const struct fault_model models[] = {
	{.name = "ideal", .at_once = true, .workers = 64, .rnr_percent = 100},
	/* Fukuoka et al.: a wait of 1.28 ms took 4.5 ms, and a READ was asked for again every 0.5 ms. */
	{.name = "connectx",
	 .workers = 1,
	 .service_ns = mlx5_fault_ns,
	 .rnr_nak = true,
	 .rnr_percent = 350,
	 .ask_again_ns = 500000,
	 .dams = true},
};

const struct fault_model *fault_model = &models[0];

void fault_model_init(const struct fl_config *cfg)
{
	fault_model = &models[!strcmp(cfg->fault_model, models[1].name)];
}
