/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program on gloo's transport over verbs: all ranks sum up an array, again and again, in a ring. programs.py compiles
 * it. argv: rank, how many, a directory in which they find each other.
 */
#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

int main(int, char **argv)
{
	int rank = atoi(argv[1]), ranks = atoi(argv[2]);
	gloo::transport::ibverbs::attr attr = {"", 1, 0};
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	auto store = gloo::rendezvous::FileStore(argv[3]);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
	std::vector<float> v(100003);

	context->connectFullMesh(store, device);
	gloo::AllreduceRing<float> sum(context, std::vector<float *>{v.data()}, (int)v.size());
	for (int i = 0; i < 20; i++) {
		for (size_t k = 0; k < v.size(); k++)
			v[k] = (float)(rank + (int)(k % 1000) + i);
		sum.run();
		for (size_t k = 0; k < v.size(); k++) {
			if (v[k] != ranks * (ranks - 1) / 2 + ranks * ((int)(k % 1000) + i)) {
				fprintf(stderr, "rank %d, turn %d: wrong at %zu: %f\n", rank, i, k, v[k]);
				return 1;
			}
		}
	}
	/* run() does not wait for its last notification to be sent, and the destructor aborts then */
	sleep(1);
	printf("gloo: rank %d of %d, all right\n", rank, ranks);
	return 0;
}
