/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/impairment.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CERTAIN	  (1ull << 32)
#define DELAY_MAX 10000000000ull /* 10 s: longer than any timer of a QP is a mistake */

/* A number without its sign is refused: it might mean either. */
static const char *percent(const char *v, uint64_t *chance)
{
	char *end;
	double d = strtod(v, &end);

	if (end == v || strcmp(end, "%") || !(d >= 0 && d <= 100))
		return "has a chance that is no percentage, such as loss=1%";
	*chance = (uint64_t)(d / 100 * CERTAIN);
	return NULL;
}

/* a number and its unit; *end: behind it */
static bool duration(const char *v, char **end, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	double d = strtod(v, end);
	unsigned i;

	if (*end == v || !(d >= 0 && d <= DELAY_MAX))
		return false;
	for (i = 0; i < sizeof(unit) / sizeof(unit[0]); i++) {
		if (strncmp(*end, unit[i].name, strlen(unit[i].name)))
			continue;
		*end += strlen(unit[i].name);
		*ns = (uint64_t)(d * unit[i].ns);
		return d * unit[i].ns <= DELAY_MAX;
	}
	return false;
}

static const char *delay(const char *v, struct fl_impairment *im)
{
	static const char wrong[] = "has a delay that is no time of at most 10 s, such as delay=1ms or delay=1ms~200us";
	char *end;

	im->jitter_ns = 0;
	if (!duration(v, &end, &im->delay_ns))
		return wrong;
	if (*end == '~' && !duration(end + 1, &end, &im->jitter_ns))
		return wrong;
	if (*end)
		return wrong;
	return im->jitter_ns <= im->delay_ns ? NULL : "varies a delay by more than its length";
}

static const char *seed(const char *v, uint64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoull(v, &end, 0);
	return errno || end == v || *end || *v == '-' ? "has a seed that is no number" : NULL;
}

static const char *one(char *item, struct fl_impairment *im)
{
	const struct {
		const char *name;
		uint64_t *chance;
	} chances[] = {{"loss", &im->loss}, {"reorder", &im->reorder}, {"dup", &im->dup},
		       {"corrupt", &im->corrupt}, {"ecn", &im->ecn}};
	char *value = strchr(item, '=');
	unsigned i;

	if (!value)
		return "must be like loss=1%,reorder=2%,dup=1%,delay=1ms~200us,corrupt=0.1%,ecn=1%,seed=7";
	*value++ = '\0';
	for (i = 0; i < sizeof(chances) / sizeof(chances[0]); i++)
		if (!strcmp(item, chances[i].name))
			return percent(value, chances[i].chance);
	if (!strcmp(item, "delay"))
		return delay(value, im);
	if (!strcmp(item, "seed"))
		return seed(value, &im->seed);
	return "names what is none of loss, reorder, dup, delay, corrupt, ecn, seed";
}

const char *fl_impairment_parse(const char *text, struct fl_impairment *im)
{
	char copy[256], *save, *item;
	const char *wrong = NULL;

	memset(im, 0, sizeof(*im));
	if (strlen(text) >= sizeof(copy))
		return "is too long";
	strcpy(copy, text);
	for (item = strtok_r(copy, ",", &save); item && !wrong; item = strtok_r(NULL, ",", &save))
		wrong = one(item, im);
	return wrong;
}

bool fl_impairment_on(const struct fl_impairment *im)
{
	return im->loss || im->reorder || im->dup || im->corrupt || im->ecn || im->delay_ns;
}
