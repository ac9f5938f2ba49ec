/* SPDX-License-Identifier: BSD-2-Clause */
/* A wire that harms packets on purpose. impair.c tells how, and on what it depends. */
#ifndef FL_NET_IMPAIR_H
#define FL_NET_IMPAIR_H

#include "net/net.h"

struct impair;
struct impair_flow;

/* NULL in *out when the settings ask for nothing */
int impair_open(struct net *net, const char *setting, struct impair **out);
/* takes no lock; net_close(), or the child of a fork */
void impair_close(struct impair *im);
/* what is held stays as it is, until impair_go_on() */
void impair_hold(struct impair *im);
void impair_go_on(struct impair *im);
/* as net_xmit() */
int impair_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg);
/* true: packets of this path are on their way still; it is freed when they are gone */
bool impair_keeps(struct net_path *path);
void impair_flow_free(struct impair_flow *flow);

/* Is something due? A hint, cheap. */
bool impair_due(const struct impair *im);
/* sends what is due, or all that is held; no lock held */
void impair_release(struct impair *im, bool all);

#endif
