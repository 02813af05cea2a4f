/* A worker's end of the control socket to its dtrun agent (proto/control.proto), for any program: header
 * only, C99, no library. docs/worker-kit.md has the rules; count.c is an example.
 *
 *   dtrun_worker w;
 *   if (dtrun_open(&w, 1) != 0) …                       no agent that keeps this worker: train as if there
 * were none while (dtrun_ready(&w, done, "") == 0) {            waits for a place: w.rank, w.world_size,
 * w.generation, w.address meet the peers through dtrun_set and dtrun_get, agree on the furthest `done`, hand
 * the state over; while (done < total && dtrun_poll(&w) == DTRUN_GO_ON) { one step; ++done;
 * dtrun_progress(&w, done, total, loss); } leave the connections of this generation
 *   }
 *
 * For one thread. A collective that breaks is a reason to call dtrun_ready again, with how it broke.
 * DTRUN_PAUSE means to leave at once, and DTRUN_PAUSE_AFTER_STEP after a step on which all agree; who cannot
 * agree takes it for DTRUN_PAUSE. */
#ifndef DTRUN_WORKER_H
#define DTRUN_WORKER_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DTRUN_GO_ON = 0, DTRUN_PAUSE = 1, DTRUN_PAUSE_AFTER_STEP = 2 };
enum { DTRUN_PROTOCOL = 6, DTRUN_EXIT_STOPPED = 75, DTRUN_MAX_VALUE = 4096, DTRUN_MAX_KEY = 256 };

typedef struct {
  int fd;
  int64_t rank, world_size, local_rank, generation;
  char address[64];                /* this node's, on which collectives listen */
  int order;                       /* the newest of this generation */
  char value[DTRUN_MAX_VALUE + 1]; /* of the last dtrun_get, with a zero behind it */
  size_t value_size;
  /* Below: not for the program. */
  unsigned char in[1 << 16];
  size_t used;
  uint64_t pulse, requests, reply;
  int reply_ok, placed, greeted, outlives;
} dtrun_worker;

/* ---- protobuf, as much of it as is needed */

static inline unsigned char* dtrun_put_varint(unsigned char* p, uint64_t n) {
  for (; n > 127; n >>= 7) *p++ = (unsigned char)(n | 128);
  *p++ = (unsigned char)n;
  return p;
}

static inline unsigned char* dtrun_put_int(unsigned char* p, int field, uint64_t n) {
  return dtrun_put_varint(dtrun_put_varint(p, (uint64_t)field << 3), n);
}

static inline unsigned char* dtrun_put_bytes(unsigned char* p, int field, const void* data, size_t size) {
  p = dtrun_put_varint(dtrun_put_varint(p, (uint64_t)field << 3 | 2), size);
  if (size > 0) memcpy(p, data, size);
  return p + size;
}

/* Past the end there are zeros. */
static inline uint64_t dtrun_take_varint(const unsigned char** p, const unsigned char* end) {
  uint64_t n = 0;
  int shift = 0;
  while (*p < end) {
    const unsigned char byte = *(*p)++;
    if (shift < 64) n |= (uint64_t)(byte & 127) << shift;
    shift += 7;
    if (byte < 128) break;
  }
  return n;
}

typedef struct { /* of a message, by number */
  int64_t number[8];
  const unsigned char* bytes[8];
  size_t size[8];
} dtrun_fields;

static inline void dtrun_take_fields(dtrun_fields* fields, const unsigned char* p, const unsigned char* end) {
  memset(fields, 0, sizeof *fields);
  while (p < end) {
    const uint64_t key = dtrun_take_varint(&p, end);
    const size_t field = (size_t)(key >> 3);
    if ((key & 7) == 0) {
      const uint64_t n = dtrun_take_varint(&p, end);
      if (field < 8) fields->number[field] = (int64_t)n;
      continue;
    }
    uint64_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : dtrun_take_varint(&p, end);
    if (size > (uint64_t)(end - p)) size = (uint64_t)(end - p);
    if ((key & 7) == 2 && field < 8) fields->bytes[field] = p, fields->size[field] = (size_t)size;
    p += size;
  }
}

/* ---- messages */

/* A frame: 4 bytes of length, then field `kind` of FromWorker, with progress (3) the pulse too. -1: the agent
 * is gone. */
static inline int dtrun_send(dtrun_worker* w, int kind, const unsigned char* body, size_t size) {
  unsigned char out[DTRUN_MAX_VALUE + DTRUN_MAX_KEY + 128];
  unsigned char *end = dtrun_put_bytes(out + 4, kind, body, size), *p = out;
  uint32_t length;
  int i;
  if (kind == 3) end = dtrun_put_int(end, 7, ++w->pulse);
  length = (uint32_t)(end - out - 4);
  for (i = 0; i < 4; ++i) out[i] = (unsigned char)(length >> 8 * i);
  while (p < end) {
    const ssize_t n = send(w->fd, p, (size_t)(end - p), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    p += n;
  }
  return 0;
}

static inline void dtrun_copy_text(char* to, size_t room, const unsigned char* from, size_t size) {
  const size_t length = size < room ? size : room - 1;
  if (length > 0) memcpy(to, from, length);
  to[length] = 0;
}

static inline void dtrun_understand(dtrun_worker* w, const unsigned char* p, const unsigned char* end) {
  const uint64_t kind = dtrun_take_varint(&p, end) >> 3;
  dtrun_fields fields;
  (void)dtrun_take_varint(&p, end);
  dtrun_take_fields(&fields, p, end);
  if (kind == 2) { /* KvReply */
    w->reply = (uint64_t)fields.number[1];
    w->reply_ok = (int)fields.number[2];
    w->value_size = fields.size[4] < sizeof w->value ? fields.size[4] : sizeof w->value - 1;
    dtrun_copy_text(w->value, sizeof w->value, fields.bytes[4], w->value_size);
  } else if (kind == 3) { /* Stop; kind 0: end at once. One that comes late would stop the next generation. */
    if (fields.number[1] == 0) _exit(DTRUN_EXIT_STOPPED);
    if (w->placed && w->order != DTRUN_PAUSE) w->order = (int)fields.number[1];
  } else if (kind == 4) { /* Start */
    w->rank = fields.number[1], w->world_size = fields.number[2];
    w->local_rank = fields.number[3], w->generation = fields.number[4];
    dtrun_copy_text(w->address, sizeof w->address, fields.bytes[5], fields.size[5]);
    w->order = DTRUN_GO_ON;
    w->placed = 1;
  } else if (kind == 5) { /* HelloAck */
    w->outlives = fields.number[1] == DTRUN_PROTOCOL && fields.number[2] != 0;
    w->greeted = 1;
  }
}

/* Takes what has come within `wait_ms` (-1: waits for something). The end of the agent is that of its worker.
 */
static inline void dtrun_listen(dtrun_worker* w, int wait_ms) {
  struct pollfd readable;
  ssize_t n;
  size_t begun = 0;
  readable.fd = w->fd, readable.events = POLLIN, readable.revents = 0;
  if (poll(&readable, 1, wait_ms) <= 0) return;
  n = recv(w->fd, w->in + w->used, sizeof w->in - w->used, 0);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) _exit(DTRUN_EXIT_STOPPED);
  w->used += (size_t)n;
  while (w->used - begun >= 4) {
    const unsigned char* p = w->in + begun;
    const size_t size = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (size > sizeof w->in - 4) _exit(DTRUN_EXIT_STOPPED); /* no message of an agent is so long */
    if (w->used - begun - 4 < size) break;
    if (size > 0) dtrun_understand(w, p + 4, p + 4 + size);
    begun += 4 + size;
  }
  w->used -= begun;
  memmove(w->in, w->in + begun, w->used);
}

/* ---- for the program */

/* Meets the agent. `outlives`: this worker keeps its state when a peer dies. 0: the agent will keep it, so
 * dtrun_ready comes next. 1: it will not (no --recovery memory); dtrun_progress may be used. -1: there is no
 * agent. */
static inline int dtrun_open(dtrun_worker* w, int outlives) {
  const char* fd = getenv("DTRUN_CONTROL_FD");
  unsigned char body[32], *p;
  memset(w, 0, sizeof *w);
  if (fd == NULL) return -1;
  w->fd = atoi(fd);
  p = dtrun_put_int(dtrun_put_int(body, 1, DTRUN_PROTOCOL), 2, (uint64_t)getpid());
  if (outlives) p = dtrun_put_int(p, 3, 1);
  if (dtrun_send(w, 1, body, (size_t)(p - body)) != 0) return -1;
  while (!w->greeted) dtrun_listen(w, -1);
  return w->outlives ? 0 : 1;
}

/* Waits for a place in a generation. `done`: steps of the state that this process holds, -1: none. `error`:
 * how a collective broke; "": told to leave, or just loaded. -1: the agent is gone. */
static inline int dtrun_ready(dtrun_worker* w, int64_t done, const char* error) {
  unsigned char body[256], *p = body;
  size_t size = 0;
  while (size < 200 && error[size] != 0) ++size;
  if (done >= 0) p = dtrun_put_int(p, 1, (uint64_t)done);
  p = dtrun_put_bytes(p, 2, error, size);
  w->placed = 0;
  if (dtrun_send(w, 4, body, (size_t)(p - body)) != 0) return -1;
  while (!w->placed) dtrun_listen(w, -1);
  return 0;
}

/* The newest order of this generation; does not wait. */
static inline int dtrun_poll(dtrun_worker* w) {
  dtrun_listen(w, 0);
  return w->order;
}

/* At least once a second, with another `step` or not: it is also the sign of life. */
static inline void dtrun_progress(dtrun_worker* w, int64_t step, int64_t total, double loss) {
  unsigned char body[64],
      *p = dtrun_put_int(dtrun_put_int(dtrun_put_int(body, 1, 1), 2, (uint64_t)step), 3, (uint64_t)total);
  uint64_t bits;
  int i;
  memcpy(&bits, &loss, sizeof bits);
  p = dtrun_put_varint(p, 5 << 3 | 1);
  for (i = 0; i < 8; ++i) *p++ = (unsigned char)(bits >> 8 * i);
  (void)dtrun_send(w, 3, body, (size_t)(p - body));
}

static inline int dtrun_store(dtrun_worker* w, int op, const char* key, const void* value, size_t size,
                              int timeout_ms) {
  unsigned char body[DTRUN_MAX_VALUE + DTRUN_MAX_KEY + 64], *p;
  const size_t length = strlen(key);
  if (size > DTRUN_MAX_VALUE || length > DTRUN_MAX_KEY) return -1;
  p = dtrun_put_int(dtrun_put_int(body, 1, ++w->requests), 2, (uint64_t)op);
  p = dtrun_put_bytes(dtrun_put_bytes(p, 3, key, length), 4, value, size);
  p = dtrun_put_int(p, 7, (uint64_t)timeout_ms);
  if (dtrun_send(w, 2, body, (size_t)(p - body)) != 0) return -1;
  while (w->reply != w->requests && w->order == DTRUN_GO_ON) dtrun_listen(w, -1);
  return w->reply == w->requests && w->reply_ok ? 0 : -1;
}

/* The store of this generation; values have at most DTRUN_MAX_VALUE bytes, keys DTRUN_MAX_KEY. dtrun_get
 * waits for the key and leaves its value in w->value. -1: the generation ends, or nobody set it in time. */
static inline int dtrun_set(dtrun_worker* w, const char* key, const void* value, size_t size) {
  return dtrun_store(w, 0, key, value, size, 0);
}
static inline int dtrun_get(dtrun_worker* w, const char* key, int timeout_ms) {
  return dtrun_store(w, 1, key, "", 0, timeout_ms);
}

#ifdef __cplusplus
}
#endif
#endif
