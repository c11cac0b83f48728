// A few threads that wait for work. They survive neither a fork nor are they needed after one: the child makes its own.
#pragma once

#include <pthread.h>

#include <new>

#include "polyphase/core/abi.h"
#include "polyphase/core/standard.h"

namespace polyphase {

// <mutex> and <thread> take long to compile, at a user's first call.
class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

class Threads {
 public:
  // Splits [0, count) into `threads` equal parts. Where the threads are at work for another caller, runs it all here.
  static void run(int64_t count, int64_t threads, Body body, void* context) {
    if (threads < 2 || count < 2) return body(context, 0, count);
    Threads& self = instance();
    if (pthread_mutex_trylock(&self.at_work_) != 0) return body(context, 0, count);
    const bool enough_memory = self.run_parts({body, context, count, min(threads, count)});
    pthread_mutex_unlock(&self.at_work_);
    if (!enough_memory) throw std::bad_alloc();
  }

 private:
  struct Job {
    Body body;
    void* context;
    int64_t count;
    int64_t parts;
  };

  // Never destroyed: its threads may still be waiting when the process ends.
  static Threads& instance() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { current() = new Threads; });
    static_cast<void>(registered);
    return *current();
  }

  static Threads*& current() {
    static Threads* current = new Threads;
    return current;
  }

  bool run_parts(Job job) {
    {
      const Lock lock(&mutex_);
      while (started_ < job.parts - 1 && start_thread()) {
      }
      job.parts = min(job.parts, started_ + 1);
      job_ = job;
      failed_ = false;
      pending_ = job.parts - 1;
      ++generation_;
      pthread_cond_broadcast(&wake_);
    }
    const bool ok = run_part(job, 0);
    const Lock lock(&mutex_);
    while (pending_ > 0) pthread_cond_wait(&done_, &mutex_);
    return ok && !failed_;
  }

  struct Start {
    Threads* threads;
    int64_t part;
  };

  // False where the system gives no more threads: those there are do the work.
  bool start_thread() {
    auto* start = new Start{this, started_ + 1};
    pthread_t thread;
    const auto body = [](void* argument) -> void* {
      const Start start = *static_cast<Start*>(argument);
      delete static_cast<Start*>(argument);
      start.threads->work(start.part);
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, body, start) != 0) {
      delete start;
      return false;
    }
    pthread_detach(thread);
    ++started_;
    return true;
  }

  [[noreturn]] void work(int64_t part) {
    uint64_t seen = 0;
    pthread_mutex_lock(&mutex_);
    for (;;) {
      while (generation_ == seen) pthread_cond_wait(&wake_, &mutex_);
      seen = generation_;
      const Job job = job_;
      if (part >= job.parts) continue;
      pthread_mutex_unlock(&mutex_);
      const bool ok = run_part(job, part);
      pthread_mutex_lock(&mutex_);
      failed_ |= !ok;
      if (--pending_ == 0) pthread_cond_signal(&done_);
    }
  }

  // Memory may run out; an exception must not leave a thread.
  static bool run_part(const Job& job, int64_t part) {
    try {
      job.body(job.context, job.count * part / job.parts, job.count * (part + 1) / job.parts);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  pthread_mutex_t at_work_ = PTHREAD_MUTEX_INITIALIZER;  // held by the caller whose job it is
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;    // guards what follows
  pthread_cond_t wake_ = PTHREAD_COND_INITIALIZER, done_ = PTHREAD_COND_INITIALIZER;
  Job job_ = {};
  int64_t started_ = 0;
  int64_t pending_ = 0;
  uint64_t generation_ = 0;
  bool failed_ = false;
};

}  // namespace polyphase
