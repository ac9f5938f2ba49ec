/* SPDX-License-Identifier: BSD-2-Clause */
/* What is other for datagrams (ud.c). All with the QP locked, but where said. */
#ifndef FL_HW_UD_H
#define FL_HW_UD_H

#include "hw/hw.h"

struct ud_paths;
struct ud_path;
struct ud_paths *ud_paths_new(void);
void ud_paths_free(struct ud_paths *t); /* it is empty */
struct ud_path *ud_paths_take(struct ud_paths *t, uint32_t *slots);
void ud_paths_close(struct ud_path *v, uint32_t slots); /* QP not locked */
/*
 * Opens the paths that the list of work requests, up to end, needs; QP not locked. 0, or an errno (positive), and
 * *stop is the work request that cannot be posted for it.
 */
int ud_open_paths(struct hca_qp *qp, struct ibv_send_wr *wr, const struct ibv_send_wr *end, struct ibv_send_wr **stop);
/* has it an address handle? 0 or EINVAL */
int ud_check_wr(const struct hca_qp *qp, const struct ibv_send_wr *wr);
uint32_t ud_wr_qkey(const struct hca_qp *qp, const struct ibv_send_wr *wr);
/* where the work request goes; NULL: its address handle is of another PD */
struct net_path *ud_wr_path(struct hca_qp *qp, const struct ibv_send_wr *wr);
void ud_fill_wqe(struct hca_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr);
/*
 * 10.3.1: of an unreliable transport only the send queue is in error, and the consumer brings it back
 * to RTS. The oldest work request completes with status, the rest is flushed.
 */
void sq_error(struct hca_qp *qp, enum ibv_wc_status status);
void ud_flush_sends(struct hca_qp *qp);
void ud_run(struct hca_qp *qp);
void ud_rx(struct hca_qp *qp, const struct roce_pkt *pkt);
void ud_resume(struct hca_qp *qp);

/* for who opens paths himself. NULL: it is not there */
struct net_path *ud_path_find(struct hca_qp *qp, const struct net_path_attr *a);
/* 0 or -ENOMEM; *path is NULL when it has passed to the QP */
int ud_path_enter(struct hca_qp *qp, const struct net_path_attr *a, struct net_path **path);
/* the path back to where a datagram came from */
void ud_path_back(const struct hca_qp *qp, const uint8_t grh[GRH_BYTES], uint32_t src_qpn, struct net_path_attr *a);

#endif
