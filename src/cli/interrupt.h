// Ctrl-C: the first one asks the running work to stop, the second one ends the program at once.
#ifndef NUNSPARK_CLI_INTERRUPT_H_
#define NUNSPARK_CLI_INTERRUPT_H_

namespace nunspark {
class Session;
}

namespace nunspark::cli {

void InstallInterruptHandler();
bool Interrupted();

// While it lives, Ctrl-C ends the program at once: for waiting on input, when there is nothing to clean up.
class InterruptsExit {
 public:
  InterruptsExit();
  ~InterruptsExit();
  InterruptsExit(const InterruptsExit&) = delete;
  InterruptsExit& operator=(const InterruptsExit&) = delete;
};

// While it lives, Ctrl-C cancels `session`.
class InterruptsSession {
 public:
  explicit InterruptsSession(Session& session);
  ~InterruptsSession();
  InterruptsSession(const InterruptsSession&) = delete;
  InterruptsSession& operator=(const InterruptsSession&) = delete;
};

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_INTERRUPT_H_
