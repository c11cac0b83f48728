#pragma once
#include <stddef.h>

extern "C" {
struct pthread_mutex_t {
  long signature;
  char opaque[56];
};
struct pthread_cond_t {
  long signature;
  char opaque[40];
};
struct pthread_attr_t {
  long signature;
  char opaque[56];
};
typedef struct _opaque_pthread_t* pthread_t;
int pthread_mutex_lock(pthread_mutex_t*);
int pthread_mutex_trylock(pthread_mutex_t*);
int pthread_mutex_unlock(pthread_mutex_t*);
int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*);
int pthread_cond_signal(pthread_cond_t*);
int pthread_cond_broadcast(pthread_cond_t*);
int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int pthread_detach(pthread_t);
int pthread_join(pthread_t, void**);
int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
}
#define PTHREAD_MUTEX_INITIALIZER {0x32AAABA7, {0}}
#define PTHREAD_COND_INITIALIZER {0x3CB0B1BB, {0}}
