// Keeps signals away from worker threads.
#ifndef NUNSPARK_BASE_THREAD_SIGNALS_H_
#define NUNSPARK_BASE_THREAD_SIGNALS_H_

#include <signal.h>

#include "base/check.h"

namespace nunspark {

// While it lives, the calling thread takes no signal, and threads that it starts never will: a new thread inherits the
// mask. Signals are the main thread's business; elsewhere they would interrupt reads, and a handler would run on a
// thread that holds locks.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &old_) == 0);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { CHECK(pthread_sigmask(SIG_SETMASK, &old_, nullptr) == 0); }

 private:
  sigset_t old_;
};

}  // namespace nunspark

#endif  // NUNSPARK_BASE_THREAD_SIGNALS_H_
