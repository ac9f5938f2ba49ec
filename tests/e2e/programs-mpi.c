/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that checks all that it is sent: a ring of messages of many lengths, collectives, and one-sided
 * access to windows. programs.py compiles it with mpicc. It says "mpi: N ranks, all right".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST ((4u << 20) + 13)

static int rank, ranks;

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #x);     \
			MPI_Abort(MPI_COMM_WORLD, 1);                                              \
		}                                                                                  \
	} while (0)

static unsigned char pattern(size_t i, int of)
{
	return (unsigned char)(i * 31 + (i >> 11) + (unsigned)of * 7);
}

static void fill(unsigned char *at, size_t len, int of)
{
	for (size_t i = 0; i < len; i++)
		at[i] = pattern(i, of);
}

static void check(const unsigned char *at, size_t len, int of)
{
	for (size_t i = 0; i < len; i++)
		CHECK(at[i] == pattern(i, of));
}

static void ring(unsigned char *out, unsigned char *in)
{
	static const size_t sizes[] = {0, 1, 63, 1024, 8191, 65536, 300001, LARGEST};
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		MPI_Request request[2];

		fill(out, sizes[i], rank);
		memset(in, 0, sizes[i]);
		MPI_Irecv(in, (int)sizes[i], MPI_BYTE, before, (int)i, MPI_COMM_WORLD, &request[0]);
		MPI_Isend(out, (int)sizes[i], MPI_BYTE, next, (int)i, MPI_COMM_WORLD, &request[1]);
		MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
		check(in, sizes[i], before);
	}
}

static void collectives(unsigned char *buf)
{
	long mine[64], sum[64];

	for (int i = 0; i < 64; i++)
		mine[i] = rank + i;
	MPI_Allreduce(mine, sum, 64, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 64; i++)
		CHECK(sum[i] == (long)ranks * (ranks - 1) / 2 + (long)i * ranks);
	for (int root = 0; root < ranks; root++) {
		if (rank == root)
			fill(buf, 200003, root);
		MPI_Bcast(buf, 200003, MPI_BYTE, root, MPI_COMM_WORLD);
		check(buf, 200003, root);
	}
}

static void one_sided(unsigned char *buf)
{
	enum { LEN = 100000 };
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	long one = 1, was, *total;
	unsigned char *mine;
	MPI_Win win, counter;

	MPI_Win_allocate(LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
	MPI_Win_allocate(sizeof(*total), sizeof(*total), MPI_INFO_NULL, MPI_COMM_WORLD, &total, &counter);
	*total = 0;
	fill(buf, LEN, rank);
	MPI_Win_fence(0, win);
	MPI_Put(buf, LEN, MPI_BYTE, next, 0, LEN, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	check(mine, LEN, before);
	memset(buf, 0, LEN);
	MPI_Get(buf, LEN, MPI_BYTE, next, 0, LEN, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	check(buf, LEN, rank);

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, counter);
	for (int i = 0; i < 50; i++) {
		MPI_Fetch_and_op(&one, &was, MPI_LONG, 0, 0, MPI_SUM, counter);
		MPI_Win_flush(0, counter);
	}
	MPI_Win_unlock_all(counter);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counter);
	CHECK(rank || *total == 50L * ranks);
	if (rank == 0)
		MPI_Win_unlock(0, counter);
	MPI_Win_free(&counter);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(out && in);
	for (int i = 0; i < 3; i++) {
		ring(out, in);
		collectives(out);
	}
	one_sided(out);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("mpi: %d ranks, all right\n", ranks);
	MPI_Finalize();
	free(out);
	free(in);
	return 0;
}
