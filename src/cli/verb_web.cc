#include "cli/verbs.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/ascii.h"
#include "cli/listening.h"
#include "hub/environment.h"
#include "io/file.h"
#include "io/file_system.h"
#include "server/access.h"
#include "server/http.h"
#include "server/web_service.h"

namespace nunspark::cli {
namespace {

// For what is written to clients still after Ctrl-C; jobs go on with the next start.
constexpr double kDrainSeconds = 2;

struct Flags {
  std::string packed_root = "models";
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string state, api_key_file, kv_spill_dir;
  std::vector<std::string> hosts;
  int threads = 0;
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// XDG_STATE_HOME/nunspark, which is ~/.local/state/nunspark. Errors: kNotFound without either.
Result<std::string> StateFolder(const std::string& given) {
  if (!given.empty()) return given;
  if (const std::string state = Variable("XDG_STATE_HOME"); state.starts_with('/')) return state + "/nunspark";
  if (const std::string home = Variable("HOME"); !home.empty()) return home + "/.local/state/nunspark";
  return NotFoundError("there is no home folder to keep jobs in; give --state-dir");
}

Result<int> Run(const Flags& flags) {
  ASSIGN_OR_RETURN(std::vector<std::string> keys, ReadKeys(flags.api_key_file));
  if (!server::IsLoopback(flags.host) && keys.empty()) {
    return InvalidArgumentError(
        fmt::format("--host {} lets other machines read and write files here; give --api-key-file", flags.host));
  }
  if (!flags.kv_spill_dir.empty()) {
    // Its engines open it much later.
    RETURN_IF_ERROR(File::CreateTemporary(flags.kv_spill_dir).status().WithContext("--kv-spill-dir"));
  }
  ASSIGN_OR_RETURN(const std::string state, StateFolder(flags.state));
  RETURN_IF_ERROR(CreateFolders(state));
  const std::string home = Variable("HOME");
  const Result<HubEnvironment> hub = ReadHubEnvironment();
  std::vector<std::string> hosts;
  for (const std::string& host : flags.hosts) hosts.push_back(AsciiLower(host));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<server::WebService> service,
      server::WebService::Create({.packed_root = std::filesystem::absolute(flags.packed_root).lexically_normal(),
                                  .hub = hub.ok() ? std::optional(*hub) : std::nullopt,
                                  .state = state,
                                  .outputs = home.empty() ? "" : home + "/nunspark-out",
                                  .keys = std::move(keys),
                                  .hosts = std::move(hosts),
                                  .engine = {.kv_spill_dir = flags.kv_spill_dir, .threads = flags.threads}}));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<server::HttpServer> http,
      server::HttpServer::Listen({.host = flags.host, .port = flags.port},
                                 [&service](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
                                   service->Handle(std::move(request), std::move(exchange));
                                 }));
  std::fprintf(stderr, "nunspark web at %s/ (Ctrl-C stops; jobs go on at the next start)\n",
               AddressOf(flags.host, http->port()).c_str());
  std::thread connections([&http] { http->Run(); });
  WaitForInterrupt();
  std::fputs("stopping\n", stderr);
  service->Close();
  http->Stop(kDrainSeconds);
  connections.join();
  return 0;
}

}  // namespace

void AddWeb(CLI::App& app, Action* action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const verb = app.add_subcommand("web", "a page for the browser: models, batches of files, chats");
  verb->add_option("--packed-root", flags->packed_root, "folder of packed models; new ones are put there")
      ->capture_default_str();
  verb->add_option("--host", flags->host, "address to listen at")->capture_default_str();
  verb->add_option("--port", flags->port, "0: any that is free")->capture_default_str();
  verb->add_option("--state-dir", flags->state,
                   "where jobs and uploaded files are kept; else XDG_STATE_HOME/nunspark, or ~/.local/state/nunspark");
  verb->add_option("--api-key-file", flags->api_key_file,
                   "file of keys, one a line; only who has one may ask. Needed beyond this machine");
  verb->add_option("--allow-host", flags->hosts,
                   "a name of this machine that browsers may ask by, beside localhost and addresses; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--threads", flags->threads, "compute threads; 0 = all CPUs this process may use")
      ->capture_default_str();
  verb->add_option("--kv-spill-dir", flags->kv_spill_dir,
                   "folder of the temporary file for keys and values; else TMPDIR, or /var/tmp");
  RefuseEmptyValues(*verb);
  verb->footer("Example: nunspark web --packed-root ~/models");
  verb->callback([flags, action] { *action = [flags] { return Run(*flags); }; });
}

}  // namespace nunspark::cli
