// Threads for what takes longer than a moment: JSON of megabytes, templates, tokens, files.
#ifndef NUNSPARK_SERVER_WORKERS_H_
#define NUNSPARK_SERVER_WORKERS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nunspark::server {

class Workers {
 public:
  // Throws std::system_error when the system refuses a thread.
  explicit Workers(int count);
  // Waits for jobs that run; what none has begun is dropped.
  ~Workers();
  void Post(std::function<void()> job);

 private:
  void Run();
  void Stop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_WORKERS_H_
