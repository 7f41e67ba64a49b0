#include "cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

#include "nunspark/session.h"

namespace nunspark::cli {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<Session*> running{nullptr};
std::atomic<bool> exits{false};

void OnSignal(int) {
  if (interrupted.exchange(true) || exits.load()) {
    constexpr char kStopped[] = "stopped\n";
    if (write(STDERR_FILENO, kStopped, sizeof(kStopped) - 1) < 0) _exit(130);
    _exit(130);
  }
  if (Session* const session = running.load()) session->Cancel();
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action {};
  action.sa_handler = OnSignal;  // no SA_RESTART: a read of standard input returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  // A reader that went away and a file that may not grow are write errors, not the end of the program.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool Interrupted() { return interrupted.load(); }

InterruptsExit::InterruptsExit() {
  exits.store(true);
  if (Interrupted()) _exit(130);
}

InterruptsExit::~InterruptsExit() { exits.store(false); }

InterruptsSession::InterruptsSession(Session& session) {
  running.store(&session);
  if (Interrupted()) session.Cancel();
}

InterruptsSession::~InterruptsSession() { running.store(nullptr); }

}  // namespace nunspark::cli
