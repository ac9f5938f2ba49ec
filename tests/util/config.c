/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings: order of the sources, and that what cannot be is said and does no harm. */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/config.h"
#include "util/impairment.h"
#include "util/log.h"

static char dir[] = "/tmp/faultline-config-XXXXXX";
static char file[64], log_file[64];
static struct fl_config cfg;

static void write_file(const char *text)
{
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *messages(void)
{
	static char buf[4096];
	FILE *f = fopen(log_file, "r");
	size_t n = f ? fread(buf, 1, sizeof(buf) - 1, f) : 0;

	buf[n] = '\0';
	if (f)
		fclose(f);
	assert_int_equal(truncate(log_file, 0), 0);
	return buf;
}

static void forget(const char *name, const char *env, const char *dflt, const char *help)
{
	unsetenv(env);
}

static int fresh(void **state)
{
	fl_config_each(forget);
	unsetenv("FAULTLINE_CONFIG");
	unsetenv("HOME");
	setenv("XDG_CONFIG_HOME", dir, 1);
	unlink(file);
	if (truncate(log_file, 0))
		return -1;
	return 0;
}

static void test_defaults(void **state)
{
	assert_int_equal(fl_config_load(&cfg), 0);
	assert_string_equal(cfg.device, "mlx5");
	assert_string_equal(cfg.netdev, "");
	assert_string_equal(cfg.link, "auto");
	assert_string_equal(cfg.pin, "auto");
	assert_string_equal(cfg.notifier, "auto");
	assert_int_equal(cfg.vendor_id, 0);
}

static void test_variable_beats_file(void **state)
{
	write_file("# a comment\ndevice = rxe\nvendor_id = 0x1234\n[faultline]\nlink=udp\n");
	setenv("FAULTLINE_DEVICE", "mlx5,rxe", 1);
	assert_int_equal(fl_config_load(&cfg), 0);
	assert_string_equal(cfg.device, "mlx5,rxe");
	assert_int_equal(cfg.vendor_id, 0x1234);
	assert_string_equal(cfg.link, "udp");
}

static void test_home(void **state)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/.config", dir);
	unsetenv("XDG_CONFIG_HOME");
	setenv("HOME", dir, 1);
	assert_int_equal(system("mkdir -p $HOME/.config"), 0);
	strcat(path, "/faultline.conf");
	f = fopen(path, "w");
	fputs("pin = mlock\n", f);
	fclose(f);
	assert_int_equal(fl_config_load(&cfg), 0);
	assert_string_equal(cfg.pin, "mlock");
}

static void test_only_this_file(void **state)
{
	char other[96];
	FILE *f;

	write_file("link = udp\n");
	snprintf(other, sizeof(other), "%s/other.conf", dir);
	f = fopen(other, "w");
	fputs("pin = mlock\n", f);
	fclose(f);
	setenv("FAULTLINE_CONFIG", other, 1);
	assert_int_equal(fl_config_load(&cfg), 0);
	assert_string_equal(cfg.link, "auto");
	assert_string_equal(cfg.pin, "mlock");

	setenv("FAULTLINE_CONFIG", "/nonexistent/faultline.conf", 1);
	assert_int_equal(fl_config_load(&cfg), -EINVAL);
	assert_non_null(strstr(messages(), "/nonexistent/faultline.conf"));
}

/* each bad value: refused, said with its name, and the one before it stays */
static void test_bad_values(void **state)
{
	static const char *const bad[][2] = {
		{"FAULTLINE_DEVICE", ""},
		{"FAULTLINE_DEVICE", ",mlx5"},
		{"FAULTLINE_DEVICE", "mlx5,"},
		{"FAULTLINE_DEVICE", "mlx5,,rxe"},
		{"FAULTLINE_DEVICE", "MLX5"},
		{"FAULTLINE_DEVICE", "a,b,c,d,e,f,g,h,i"},
		{"FAULTLINE_NETDEV", "sixteen-or-longer"},
		{"FAULTLINE_NETDEV", "a/b"},
		{"FAULTLINE_NAME", "a b"},
		{"FAULTLINE_NAME", "../x"},
		{"FAULTLINE_VENDOR_ID", "x"},
		{"FAULTLINE_VENDOR_ID", "-1"},
		{"FAULTLINE_VENDOR_ID", "0x100000000"},
		{"FAULTLINE_VENDOR_ID", "1 2"},
		{"FAULTLINE_VENDOR_PART_ID", ""},
		{"FAULTLINE_LOG", "loud"},
		{"FAULTLINE_LINK", "tcp"},
		{"FAULTLINE_PIN", "no"},
		{"FAULTLINE_NOTIFIER", "yes"},
	};
	struct fl_config defaults;

	assert_int_equal(fl_config_load(&defaults), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		messages();
		setenv(bad[i][0], bad[i][1], 1);
		assert_int_equal(fl_config_load(&cfg), -EINVAL);
		assert_memory_equal(&cfg, &defaults, sizeof(cfg));
		assert_non_null(strstr(messages(), bad[i][0]));
		unsetenv(bad[i][0]);
	}
}

static void test_bad_file(void **state)
{
	const char *said;

	write_file("device = rxe\nnonsense\ncolour = blue\nlink = tcp\npin = mlock\n");
	assert_int_equal(fl_config_load(&cfg), -EINVAL);
	assert_string_equal(cfg.device, "rxe");
	assert_string_equal(cfg.link, "auto");
	assert_string_equal(cfg.pin, "mlock");
	said = messages();
	assert_non_null(strstr(said, "line 2"));
	assert_non_null(strstr(said, "'colour'"));
	assert_non_null(strstr(said, "'link'"));

	write_file("[other]\ndevice = rxe\n");
	assert_int_equal(fl_config_load(&cfg), -EINVAL);
	assert_string_equal(cfg.device, "mlx5");
}

static void test_one_name_for_two(void **state)
{
	setenv("FAULTLINE_DEVICE", "mlx5,rxe", 1);
	setenv("FAULTLINE_NAME", "mlx5_0", 1);
	assert_int_equal(fl_config_load(&cfg), -EINVAL);
	assert_string_equal(cfg.name, "");
	setenv("FAULTLINE_DEVICE", "rxe", 1);
	assert_int_equal(fl_config_load(&cfg), 0);
	assert_string_equal(cfg.name, "mlx5_0");
}

static void test_impair(void **state)
{
	static const char *const wrong[] = {"loss", "loss=1", "loss=-1%", "loss=101%", "loss=nan%", "loss=1%x",
					    "lose=1%", "delay=1", "delay=1ms~", "delay=1ms~2ms", "delay=1h",
					    "delay=11s", "delay=1msx", "seed=", "seed=x", "seed=-1", "seed=7x"};
	struct fl_impairment im;
	unsigned i;

	assert_null(fl_impairment_parse("", &im));
	assert_false(fl_impairment_on(&im));
	assert_null(fl_impairment_parse("seed=7", &im));
	assert_false(fl_impairment_on(&im));
	assert_null(fl_impairment_parse("loss=50%,reorder=25%,dup=100%,delay=1.5ms~200us,corrupt=0%,ecn=0.1%,"
					"seed=0x10", &im));
	assert_true(fl_impairment_on(&im));
	assert_int_equal(im.loss, 1ull << 31);
	assert_int_equal(im.reorder, 1ull << 30);
	assert_int_equal(im.dup, 1ull << 32);
	assert_int_equal(im.corrupt, 0);
	assert_int_equal(im.ecn, (uint64_t)(0.001 * (1ull << 32)));
	assert_int_equal(im.delay_ns, 1500000);
	assert_int_equal(im.jitter_ns, 200000);
	assert_int_equal(im.seed, 16);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (!fl_impairment_parse(wrong[i], &im))
			fail_msg("\"%s\" was taken", wrong[i]);
	setenv("FAULTLINE_IMPAIR", "loss=1", 1);
	assert_int_equal(fl_config_load(&cfg), -EINVAL);
	assert_string_equal(cfg.impair, "");
	assert_non_null(strstr(messages(), "FAULTLINE_IMPAIR: setting 'impair': \"loss=1\" has a chance"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_defaults, fresh),
		cmocka_unit_test_setup(test_variable_beats_file, fresh),
		cmocka_unit_test_setup(test_home, fresh),
		cmocka_unit_test_setup(test_only_this_file, fresh),
		cmocka_unit_test_setup(test_bad_values, fresh),
		cmocka_unit_test_setup(test_bad_file, fresh),
		cmocka_unit_test_setup(test_one_name_for_two, fresh),
		cmocka_unit_test_setup(test_impair, fresh),
	};
	char clean[64];
	int ret;

	if (!mkdtemp(dir))
		return 1;
	snprintf(file, sizeof(file), "%s/faultline.conf", dir);
	snprintf(log_file, sizeof(log_file), "%s/log", dir);
	fclose(fopen(log_file, "w"));
	setenv("VERBS_LOG_FILE", log_file, 1);
	fl_log_init();
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(clean, sizeof(clean), "rm -r %s", dir);
	return system(clean) ? 1 : ret;
}
