// troupe usage against a server that is stopped, killed and started again, and against its file.
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

json total_of(const Finished& finished) {
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const json report = json::parse(finished.out);
  REQUIRE(report["rows"].size() == 1);
  return report["rows"][0];
}

}  // namespace

TEST_CASE("troupe usage: counts survive a stop, and its file is read where no server answers") {
  const TempFolder folder;
  const std::string path = folder.path("state/usage.db");
  const std::vector<std::string> ask{"run", "--temp", "0", "-n", "8", "--ignore-eos", "Once upon a time"};
  {
    ServerProcess server({"--usage-db", path});
    REQUIRE(server.call(ask).code == 0);
    const json used = total_of(server.call({"usage", "--json"}));
    CHECK(used["requests_done"] == 1);
    CHECK(used["answer_tokens"] == 8);
    CHECK(used["prompt_tokens"] > 3);
    CHECK(used["cpu_seconds"] > 0);
    CHECK(used["block_seconds"] > 0);
    CHECK(server.stop().code == 0);
  }
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  {
    ServerProcess server({"--usage-db", path});
    REQUIRE(server.call({"embed", "Once upon a time"}).code == 0);
    const json used = total_of(server.call({"usage", "--json", "--since", "48h"}));
    CHECK(used["requests_done"] == 2);
    CHECK(used["answer_tokens"] == 8);
    CHECK(used["embed_tokens"] > 3);
    CHECK_THAT(server.call({"usage", "--by", "hour"}).out, Contains("hour (UTC)"));
    const passwd* const user = ::getpwuid(::getuid());
    if (const group* const own = user ? ::getgrgid(user->pw_gid) : nullptr) {
      const std::string name = own->gr_name;
      for (const auto& how : {std::vector<std::string>{}, {"--group", name}}) {
        std::vector<std::string> ask_groups{"usage", "--by", "group", "--json"};
        ask_groups.insert(ask_groups.end(), how.begin(), how.end());
        const json grouped = total_of(server.call(ask_groups));
        CHECK(grouped["group"] == name);
        CHECK(grouped["gid"] == own->gr_gid);
        CHECK(grouped["requests_done"] == 2);
      }
      CHECK_THAT(server.call({"usage", "--by", "group"}).out, Contains("group ") && Contains("\n" + name + " "));
    }
    const Finished unknown = server.call({"usage", "--by", "group", "--group", "no-such-group"});
    CHECK(unknown.code == 2);
    CHECK_THAT(unknown.err, Contains("--usage-group: this system has no group 'no-such-group'"));
    CHECK_THAT(server.call({"usage", "--group", "root"}).err, Contains("with --by group alone"));
    server.process().signal(SIGKILL);  // the question had it written
    CHECK(server.process().wait().by_signal);
  }
  const std::string nowhere = folder.path("none.sock");
  const Finished from_file = invoke({"usage", "--socket", nowhere, "--usage-db", path, "--json"});
  CHECK_THAT(from_file.err, Contains("no server answers; this is what " + path + " has"));
  CHECK(total_of(from_file)["requests_done"] == 2);
  const Finished no_file = invoke({"usage", "--socket", nowhere, "--usage-db", folder.path("none.db")});
  CHECK(no_file.code == 1);
  CHECK_THAT(no_file.err, Contains("troupe serve"));
}

TEST_CASE("troupe usage: a server with a damaged file serves and says what is missing, one without refuses") {
  const TempFolder folder;
  const std::string path = folder.write("usage.db", std::string(5000, 'x'));
  ServerProcess damaged({"--usage-db", path});
  REQUIRE(damaged.call({"run", "-n", "4", "Once"}).code == 0);
  const Finished used = damaged.call({"usage"});
  CHECK(used.code == 0);
  CHECK_THAT(used.err, Contains("only what was used since the start") && Contains("damaged"));
  const Finished stopped = damaged.stop();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains("usage: " + path + ": it is damaged"));

  ServerProcess off({"--usage-db", "off"});
  const Finished refused = off.call({"usage"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("--usage-db off"));
  CHECK(off.call({"usage", "--since", "never"}).code == 2);
}
