// Packers that are killed, and drives that are full: always no pack or a complete one, and the same one in the end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/rng.h"
#include "pack/test_model.h"
#include "pack/verify.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

constexpr int kNotPossible = 77;  // exit code of a child that lacks a permission

// Runs `body` in a child process; its result is the child's exit code.
pid_t Fork(const std::function<int()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) ::_exit(body());
  return child;
}

// Exit code, or minus the signal.
int Wait(pid_t child) {
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    TestModel model = MakeTestModel({.layers = 2, .experts = 6});
    model.side_files["tokenizer.json"] = "{\"model\": {}}";
    model.WriteTo(work_ / "model");
    options_.split_bytes = 30000;
    options_.out_folder = work_ / "reference";
    ASSERT_TRUE(PackFolder(work_ / "model", options_).ok());
    reference_ = FolderContent(work_ / "reference");
    options_.out_folder = work_ / "pack";
  }

  int PackInChild() const { return PackFolder(work_ / "model", options_).ok() ? 0 : 1; }

  // After a kill: nothing under the name, or all of it.
  void ExpectNoneOrAll() const {
    if (!FolderExists(work_ / "pack")) return;
    EXPECT_TRUE(FolderContent(work_ / "pack") == reference_);
  }

  void ExpectFinishes(std::string_view when) const {
    const Result<PackReport> report = PackFolder(work_ / "model", options_);
    ASSERT_TRUE(report.ok()) << when << ": " << report.status().message();
    ASSERT_TRUE(FolderContent(work_ / "pack") == reference_) << when;
    ASSERT_FALSE(FolderExists(work_ / "pack.partial")) << when;
  }

  void Remove() const {
    std::filesystem::remove_all(work_ / "pack");
    std::filesystem::remove_all(work_ / "pack.partial");
  }

  TempFolder work_{FolderPlace::kMemory};
  PackOptions options_{.out_folder = ""};
  std::map<std::string, std::string> reference_;
};

// Twenty kills, spread at random over the time that a pack takes, each going on from what the one before has left. The
// times only choose where the kills fall; whatever they hit, the outcome must be the same. Where packs end before their
// kill, because the machine is busy elsewhere, kills come earlier.
TEST_F(CrashTest, KilledAtRandomMomentsItResumesToTheSamePack) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(Wait(Fork([&] { return PackInChild(); })), 0);
  std::chrono::duration<double> span = std::chrono::steady_clock::now() - start;
  Remove();
  int kills = 0;
  for (uint32_t i = 0; kills < 20 && i < 200; ++i) {
    const pid_t child = Fork([&] { return PackInChild(); });
    std::this_thread::sleep_for(span * KeyedUniform({.seed = 20}, i));
    ::kill(child, SIGKILL);
    const int result = Wait(child);
    if (result == -SIGKILL) ++kills;
    ExpectNoneOrAll();
    if (result == 0) {
      span *= 0.8;
      EXPECT_TRUE(FolderContent(work_ / "pack") == reference_);
      Remove();
    }
  }
  EXPECT_EQ(kills, 20);
  ExpectFinishes("after the last kill");
}

// Stops a child at its system calls and kills it at call number `kill_at` (entry or exit of one); returns the number of
// stops if it ends before. -1: tracing is not allowed here.
int64_t RunTraced(const std::function<int()>& body, int64_t kill_at) {
  const pid_t child = Fork([&] {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kNotPossible;
    ::raise(SIGSTOP);
    return body();
  });
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  if (!WIFSTOPPED(status)) return -1;
  int64_t stops = 0;
  for (; stops < kill_at; ++stops) {
    CHECK(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0);
    CHECK(::waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      return stops;
    }
  }
  ::kill(child, SIGKILL);
  EXPECT_EQ(Wait(child), -SIGKILL);
  return stops;
}

TEST_F(CrashTest, KilledAtItsSystemCallsItResumesToTheSamePack) {
  const auto body = [&] { return PackInChild(); };
  const int64_t all = RunTraced(body, int64_t{1} << 40);
  if (all < 0) GTEST_SKIP() << "tracing of child processes is not allowed here";
  ASSERT_GT(all, 200);
  Remove();
  // Every stop at the end, where the pack gets its name and the journal goes; before that, evenly.
  for (int64_t stop = all - 1; stop > 0; stop -= stop > all - 24 ? 1 : all / 40) {
    RunTraced(body, stop);
    ExpectNoneOrAll();
    ExpectFinishes(fmt::format("killed at stop {} of {}", stop, all));
    Remove();
  }
}

// A kill in the middle of a resumed run is no different.
TEST_F(CrashTest, KilledAgainAndAgainAtEachStepItGetsThere) {
  int runs = 0;
  while (!FolderExists(work_ / "pack")) {
    ASSERT_LT(++runs, 100);
    const int result = Wait(Fork([&] {
      PackOptions options = options_;
      int64_t first = -1;
      // Dies as soon as one file more is done: progress is kept per file with models this small.
      options.progress = [&](int64_t done, int64_t) {
        if (first < 0) first = done;
        if (done > 60000 * runs) ::raise(SIGKILL);
        return true;
      };
      return PackFolder(work_ / "model", options).ok() ? 0 : 1;
    }));
    EXPECT_TRUE(result == 0 || result == -SIGKILL) << result;
  }
  EXPECT_GT(runs, 3);
  EXPECT_TRUE(FolderContent(work_ / "pack") == reference_);
}

TEST_F(CrashTest, FileSizeLimitIsAClearErrorAndTheWorkIsKept) {
  options_.split_bytes = int64_t{1} << 30;
  options_.out_folder = work_ / "large_files";
  ASSERT_TRUE(PackFolder(work_ / "model", options_).ok());
  reference_ = FolderContent(options_.out_folder);
  options_.out_folder = work_ / "pack";
  // Enough for the core, not for the experts.
  const rlim_t bytes = reference_.at("model-core.safetensors").size();
  ASSERT_LT(bytes, reference_.at("model-experts-00001.safetensors").size());
  const int result = Wait(Fork([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return kNotPossible;
    const Result<PackReport> report = PackFolder(work_ / "model", options_);
    if (report.status().code() != StatusCode::kResourceExhausted) return 1;
    const std::string& message = report.status().message();
    if (message.find("model-experts-00001.safetensors") == std::string::npos) return 2;
    return message.find("the same command continues it") == std::string::npos ? 3 : 0;
  }));
  EXPECT_EQ(result, 0);
  const Result<PackReport> report = PackFolder(work_ / "model", options_);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->resumed);
  EXPECT_TRUE(FolderContent(work_ / "pack") == reference_);
}

bool WriteProc(const char* path, std::string_view text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written;
}

// In a child with a small file system of its own at `work`/drive; `body` returns its exit code.
int OnSmallDrive(const TempFolder& work, const char* size, const std::function<int()>& body) {
  std::filesystem::create_directories(work / "drive");
  return Wait(Fork([&] {
    const std::string user = fmt::format("0 {} 1", ::getuid());
    const std::string group = fmt::format("0 {} 1", ::getgid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNotPossible;
    // Without these the new files would have no owner.
    if (!WriteProc("/proc/self/setgroups", "deny") || !WriteProc("/proc/self/uid_map", user) ||
        !WriteProc("/proc/self/gid_map", group)) {
      return kNotPossible;
    }
    if (::mount("tmpfs", (work / "drive").c_str(), "tmpfs", 0, size) != 0) return kNotPossible;
    return body();
  }));
}

TEST_F(CrashTest, DriveThatIsTooSmallIsRefusedBeforeWriting) {
  options_.out_folder = work_ / "drive/pack";
  const int result = OnSmallDrive(work_, "size=128k", [&] {
    const Result<PackReport> report = PackFolder(work_ / "model", options_);
    if (report.status().code() != StatusCode::kResourceExhausted) return 1;
    if (report.status().message().find("not enough space for the pack: it needs") == std::string::npos) return 2;
    return ListFolder(work_ / "drive")->empty() ? 0 : 3;
  });
  if (result == kNotPossible) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_F(CrashTest, DriveThatFillsUpKeepsTheWorkForLater) {
  options_.out_folder = work_ / "drive/pack";
  const int result = OnSmallDrive(work_, "size=1m", [&] {
    // Somebody else takes the space once the first file is done.
    const auto fill = [&](int64_t done, int64_t) {
      const std::string path = work_ / "drive/filler";
      if (done < 150000 || FileExists(path)) return true;
      std::FILE* const file = std::fopen(path.c_str(), "w");
      const std::string block(4096, 'x');
      while (std::fwrite(block.data(), 1, block.size(), file) == block.size() && std::fflush(file) == 0) continue;
      std::fclose(file);
      return true;
    };
    PackOptions options = options_;
    options.progress = fill;
    Result<PackReport> report = PackFolder(work_ / "model", options);
    if (report.status().code() != StatusCode::kResourceExhausted) return 1;
    const std::string& message = report.status().message();
    if (message.find("ENOSPC") == std::string::npos && message.find("not enough space") == std::string::npos) return 2;
    if (message.find("the same command continues it") == std::string::npos) return 3;
    std::filesystem::remove(work_ / "drive/filler");
    report = PackFolder(work_ / "model", options_);
    if (!report.ok()) return 4;
    if (!report->resumed) return 5;
    return FolderContent(options_.out_folder) == reference_ ? 0 : 6;
  });
  if (result == kNotPossible) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_F(CrashTest, OutputThatIsAMountPointIsRefused) {
  options_.out_folder = work_ / "drive";
  const int result = OnSmallDrive(work_, "size=4m", [&] {
    const Result<PackReport> report = PackFolder(work_ / "model", options_);
    if (report.status().code() != StatusCode::kInvalidArgument) return 1;
    return report.status().message().find("top of a file system") == std::string::npos ? 2 : 0;
  });
  if (result == kNotPossible) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(result, 0);
}

int64_t PeakBytes() {
  const std::string status = ReadWholeFile("/proc/self/status").value();
  return std::stoll(status.substr(status.find("VmHWM:") + 6)) * 1024;
}

TEST(PackMemory, PeakDoesNotGrowWithThePieces) {
  // A single piece of 192 MB, as a file with a hole: the buffers are far smaller.
  const TempFolder work;
  std::filesystem::create_directory(work / "model");
  TestModel model = MakeTestModel({.layers = 1, .tied = true});
  model.config.Set("vocab_size", int64_t{1500000});
  std::vector<TensorInfo> infos;
  std::string data;
  for (const TestTensor& tensor : model.tensors) {
    TensorInfo info{.name = tensor.name,
                    .dtype = tensor.dtype,
                    .shape = tensor.shape,
                    .bytes = static_cast<int64_t>(tensor.data.size())};
    if (tensor.name == "model.embed_tokens.weight") {
      info.shape = {1500000, 64};
      info.bytes = 192000000;
    } else {
      data += tensor.data;
    }
    infos.push_back(std::move(info));
  }
  const std::string path = work / "model/model.safetensors";
  const std::string header = WriteSafetensorsHeader(infos, 8);
  ASSERT_TRUE(WriteFileAtomically(path, header).ok());
  std::filesystem::resize_file(path, header.size() + 192000000 + data.size());
  ASSERT_TRUE(WriteFileAtomically(work / "model/config.json", WriteJson(model.config)).ok());

  const int result = Wait(Fork([&] {
    if (!WriteProc("/proc/self/clear_refs", "5")) return kNotPossible;  // sets the peak back to what is in use
    const int64_t before = PeakBytes();
    if (!PackTo(work / "model", work / "pack").ok()) return 2;
    if (!Verify(work / "pack")->ok()) return 3;
    if (PeakBytes() - before >= 64000000) return 4;
    // The same while it is encoded: its scales and biases, 6 MB, are kept until its codes are written.
    PackOptions options;
    options.out_folder = work / "quantised";
    options.quantize = {ParseQuantizeRule("model.embed_tokens=affine:4:64").value()};
    if (!WriteProc("/proc/self/clear_refs", "5")) return kNotPossible;
    const Result<PackReport> report = PackFolder(work / "model", options);
    if (!report.ok() || report->encoded != 1) return 5;
    return PeakBytes() - before < 64000000 ? 0 : 6;
  }));
  if (result == kNotPossible) GTEST_SKIP() << "the peak of memory cannot be reset here";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace nunspark
