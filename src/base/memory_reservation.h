// What engines have planned to use: so that a second one on the machine plans with what the first has not touched yet.
//
// Memory that a process has reserved and not touched counts as available to the system. Each engine of a user therefore
// enters its planned total into a folder in shared memory, one locked file each; a file nobody holds a lock on belongs
// to a process that has ended, and is removed by who finds it. Where the folder cannot be made, nothing is entered and
// nothing is found.
#ifndef NUNSPARK_BASE_MEMORY_RESERVATION_H_
#define NUNSPARK_BASE_MEMORY_RESERVATION_H_

#include <cstdint>
#include <string>

namespace nunspark {

// "/dev/shm/nunspark-<user id>".
std::string ReservationFolder();

// Held while planning and entering the plan, so that two engines that start together plan one after the other. Waits a
// moment, no longer, for another holder.
class PlanningLock {
 public:
  explicit PlanningLock(const std::string& folder = ReservationFolder());
  PlanningLock(const PlanningLock&) = delete;
  ~PlanningLock();

 private:
  int fd_ = -1;
};

// One entry, from Take to the destructor or the end of the process. Move-only.
class MemoryReservation {
 public:
  MemoryReservation() = default;
  MemoryReservation(MemoryReservation&& other) noexcept { *this = std::move(other); }
  MemoryReservation& operator=(MemoryReservation&& other) noexcept;
  ~MemoryReservation();

  // `bytes`: what this process will use in all, as planned.
  static MemoryReservation Take(int64_t bytes, const std::string& folder = ReservationFolder());

 private:
  int fd_ = -1;
  std::string path_;
};

// Entered and not yet resident, summed over the processes that live.
struct OutstandingMemory {
  int64_t bytes = 0;
  int64_t same_group_bytes = 0;  // of those: of processes in this one's control groups
};
OutstandingMemory ReadOutstandingMemory(const std::string& folder = ReservationFolder());

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MEMORY_RESERVATION_H_
