// A few threads that wait for work. They survive neither a fork nor are they needed after one: the child makes its own.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "polyphase/abi.h"

namespace polyphase {

class Threads {
 public:
  // Splits [0, count) into `threads` equal parts. Where the threads are at work for another caller, runs it all here.
  static void run(int64_t count, int64_t threads, Body body, void* context) {
    Threads& self = instance();
    std::unique_lock<std::mutex> at_work(self.at_work_, std::defer_lock);
    if (threads < 2 || count < 2 || !at_work.try_lock()) return body(context, 0, count);
    self.run_parts({body, context, count, std::min(threads, count)});
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

  void run_parts(const Job& job) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      while (started_ < job.parts - 1) std::thread([this, part = ++started_] { work(part); }).detach();
      job_ = job;
      failed_ = false;
      pending_ = job.parts - 1;
      ++generation_;
    }
    wake_.notify_all();
    run_part(job, 0);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
    if (failed_) throw std::bad_alloc();
  }

  void work(int64_t part) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      const Job job = job_;
      if (part >= job.parts) continue;
      lock.unlock();
      run_part(job, part);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  // Memory may run out; an exception must not leave a thread.
  void run_part(const Job& job, int64_t part) {
    try {
      job.body(job.context, job.count * part / job.parts, job.count * (part + 1) / job.parts);
    } catch (const std::bad_alloc&) {
      failed_ = true;
    }
  }

  std::mutex at_work_;  // held by the caller whose job it is
  std::mutex mutex_;    // guards what follows
  std::condition_variable wake_, done_;
  Job job_ = {};
  int64_t started_ = 0;
  int64_t pending_ = 0;
  uint64_t generation_ = 0;
  std::atomic<bool> failed_{false};
};

}  // namespace polyphase
