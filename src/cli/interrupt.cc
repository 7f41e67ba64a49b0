#include "cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

#include "nunspark/session.h"

namespace nunspark::cli {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<Session*> running{nullptr};

void OnSignal(int) {
  if (interrupted.exchange(true)) _exit(130);
  if (Session* const session = running.load()) session->Cancel();
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action {};
  action.sa_handler = OnSignal;  // no SA_RESTART: a read of standard input returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A reader that went away is a write error, not the end of the program.
  std::signal(SIGPIPE, SIG_IGN);
}

bool Interrupted() { return interrupted.load(); }

InterruptsSession::InterruptsSession(Session& session) {
  running.store(&session);
  if (Interrupted()) session.Cancel();
}

InterruptsSession::~InterruptsSession() { running.store(nullptr); }

}  // namespace nunspark::cli
