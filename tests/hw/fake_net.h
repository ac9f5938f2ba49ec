/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link that goes nowhere: what the HCA sends is kept for the test to look at, what the test injects
 * is delivered by net_poll(). It holds the HCA to the door's contract (net/net.h) and aborts with a
 * message when a train breaks it.
 */
#ifndef FL_TESTS_HW_FAKE_NET_H
#define FL_TESTS_HW_FAKE_NET_H

#include "net/net.h"

#define FAKE_SLOT 5

#define FAKE_UDP_WINDOW (64u << 10) /* bytes in flight that a path over udp takes, unless a test says more */
extern uint32_t fake_udp_window;
extern const char *fake_link;	 /* "shm" or "udp", for paths opened from now on */
extern uint32_t fake_max_train; /* bytes */
extern unsigned fake_paths;	 /* open now */

/* the oldest train sent and not looked at: false when there is none. payload is good until the next call */
bool fake_tx_pop(struct roce_pkt *pkt);
extern struct net_path_attr fake_tx_attr; /* of its path */
unsigned fake_tx_count(void);

/* what arrives next; payload is copied */
void fake_rx(const struct roce_pkt *pkt);

/* the link takes so many more trains, then says -EAGAIN; -1: no limit. Says tx_ready() where it is owed. */
void fake_net_room(int trains);
/* times net_xmit() said -EAGAIN */
extern unsigned fake_eagain;

/* a process in whose memory the HCA may place directly, if any; how often it did: nothing is copied */
extern struct net_peer *fake_peer;
extern unsigned fake_peer_accesses;

/* who may be given what arrives: with false, net_poll() by threads other than the test's does nothing */
extern bool fake_rx_any_thread;
void fake_net_is_test_thread(void);

#endif
