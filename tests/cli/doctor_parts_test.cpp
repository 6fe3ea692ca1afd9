// What troupe doctor makes of facts, and how it reads them.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/server_facts.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::cli;
using Catch::Matchers::Contains;
using troupe::test::TempFolder;

namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

// A machine of which there is nothing to say.
MachineFacts good_machine() {
  MachineFacts facts{.identity = {"Some CPU", "", "0-7"}};
  facts.num_cpus = facts.num_threads = 8;
  facts.kernels = "avx512vnni";
  facts.num_nodes = 1;
  facts.rules = {{"intel_pstate", "performance", "performance"}};
  facts.huge_pages = "madvise";
  facts.total_memory = 64 * kGiB;
  facts.available_memory = 60 * kGiB;
  facts.file_descriptors = 1 << 20;
  engine::MachineProbe probe;
  probe.measured_at = "2026-11-22T01:30:00Z";
  probe.num_threads = 8;
  probe.reads = {{kGiB, 8, true, {80e9, 0, 0, 0}}};
  facts.probe = probe;
  return facts;
}

// The one finding that is not fine.
Finding complaint(const std::vector<Finding>& findings) {
  std::vector<Finding> all;
  for (const Finding& each : findings)
    if (each.grade != Grade::fine) all.push_back(each);
  INFO(findings_text(findings, false));
  REQUIRE(all.size() == 1);
  return all[0];
}

std::vector<Finding> judged(const std::function<void(MachineFacts&)>& change, bool is_serving = false) {
  MachineFacts facts = good_machine();
  change(facts);
  return judge_machine(facts, is_serving);
}

void check_advice(const std::function<void(MachineFacts&)>& change, std::string_view topic, const std::string& found,
                  const std::string& remedy) {
  const Finding finding = complaint(judged(change));
  CHECK(finding.grade == Grade::advice);
  CHECK(finding.topic == topic);
  CHECK_THAT(finding.found, Contains(found));
  CHECK_THAT(finding.remedy, Contains(remedy));
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

UnitFacts units(bool is_user, const std::string& socket_state, const std::string& service_state) {
  const auto unit = [](const std::string& id, const std::string& state) {
    return "Id=" + id + "\nLoadState=loaded\nActiveState=" + state +
           "\nSubState=x\nUnitFileState=enabled\nResult=exit-code\nNRestarts=0\n";
  };
  auto read = parse_units(unit("troupe.socket", socket_state) + "\n" + unit("troupe.service", service_state));
  return {.is_user = is_user, .socket = read["troupe.socket"], .service = read["troupe.service"]};
}

SocketFacts at(SocketFacts::State state) {
  SocketFacts facts{.path = "/run/troupe/troupe.sock", .state = state};
  facts.group = "troupe";
  return facts;
}

}  // namespace

TEST_CASE("doctor: a machine of which there is nothing to say gets no advice") {
  const auto findings = judge_machine(good_machine(), false);
  CHECK(exit_code(findings) == 0);
  CHECK_THAT(findings_text(findings, false), Contains("80.0 GB/s") && Contains("nothing to complain of") &&
                                                 Contains("Some CPU, CPUs 0-7: 8 threads, kernels avx512vnni"));
}

TEST_CASE("doctor: each lack of a machine has its remedy") {
  check_advice([](auto& m) { m.kernels = "scalar"; }, "CPU", "several times slower", "-cpu host");
  check_advice([](auto& m) { m.cgroup_cpus = 0.5; }, "CPU", "a quota of 0.50 CPUs", "CPUQuota=");
  check_advice([](auto& m) { m.amx_refusal = "the CPU has a matrix unit, but"; }, "AMX", "matrix unit", "");
  check_advice(
      [](auto& m) {
        m.rules = {{"acpi-cpufreq", "powersave", ""}};
      },
      "frequency", "acpi-cpufreq, powersave", "cpupower frequency-set -g performance");
  check_advice(
      [](auto& m) {
        m.rules.push_back({"amd-pstate-epp", "powersave", "power"});
      },
      "frequency", "power", "echo balance_performance | sudo tee /sys");
  check_advice([](auto& m) { m.available_memory = kGiB / 2; }, "memory", "512 MiB of 64.0 GiB", "a smaller model");
  check_advice(
      [](auto& m) {
        m.available_memory = kGiB / 2;
        m.is_limited = true;
      },
      "memory", "by a limit of its control group", "MemoryMax=");
  check_advice([](auto& m) { m.overcommit = 2; }, "memory", "overcommit_memory = 2", "sysctl vm.overcommit_memory=0");
  check_advice([](auto& m) { m.total_swap = 20 * kGiB; }, "memory", "20.0 GiB are swapped out", "--memory");
  check_advice([](auto& m) { m.huge_pages = "never"; }, "huge pages", "switched off", "echo madvise");
  check_advice([](auto& m) { m.huge_pages = ""; }, "huge pages", "has no transparent ones", "CONFIG_TRANSPARENT");
  check_advice([](auto& m) { m.num_nodes = 2; }, "NUMA", "2 nodes", "numactl -N 0 -m 0");
  check_advice([](auto& m) { m.probe.reset(); }, "bandwidth", "not known", "troupe probe");
  check_advice([](auto& m) { m.probe->reads[0].rate.per_second = 9e9; }, "bandwidth", "9.0 GB/s", "memory channels");
  check_advice([](auto& m) { m.probe->others_percent = 20; }, "bandwidth", "other programs", "--refresh");
  check_advice([](auto& m) { m.load_average = 4; }, "load", "4.00 in the last minute", "AllowedCPUs=");
  check_advice([](auto& m) { m.stolen_percent = 12; }, "load", "12 %", "CPUs of its own");
  check_advice([](auto& m) { m.file_descriptors = 1024; }, "descriptors", "1024", "LimitNOFILE=");
}

TEST_CASE("doctor: load beside a server that runs is its own") {
  CHECK(exit_code(judged([](auto& m) { m.load_average = 8; }, true)) == 0);
  const Finding unknown = complaint(judged([](auto& m) { m.probe.reset(); }, true));
  CHECK_THAT(unknown.found, Contains("while a server runs"));
}

TEST_CASE("doctor: CPUs that decide their frequency themselves save no power by name alone") {
  for (const char* preference : {"performance", "balance_performance", "default"})
    CHECK(exit_code(judged([&](auto& m) { m.rules = {{"intel_pstate", "powersave", preference}}; })) == 0);
  CHECK(exit_code(judged([](auto& m) { m.rules = {{"acpi-cpufreq", "schedutil", ""}}; })) == 0);
  CHECK(exit_code(judged([](auto& m) { m.rules.clear(); })) == 0);
}

TEST_CASE("doctor reads the machine's files") {
  const TempFolder folder;
  const std::filesystem::path root = folder.path();
  write(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
  write(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  write(root / "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  write(root / "sys/devices/system/cpu/cpufreq/scaling_governor", "none of a CPU\n");
  write(root / "sys/devices/system/node/node0/cpulist", "0\n");
  write(root / "sys/devices/system/node/node1/cpulist", "1\n");
  write(root / "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  write(root / "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n");
  write(root / "proc/sys/vm/overcommit_memory", "2\n");
  write(root / "proc/loadavg", "1.25 1.00 0.50 1/200 4242\n");
  write(root / "proc/self/cgroup", "0::/unit\n");
  write(root / "sys/fs/cgroup/unit/memory.max", "204800\n");
  write(root / "sys/fs/cgroup/unit/memory.current", "102400\n");
  write(root / "sys/fs/cgroup/unit/cpu.max", "150000 100000\n");

  const MachineFacts facts = machine_facts(root);
  CHECK(facts.rules == std::vector<FrequencyRule>{{"acpi-cpufreq", "performance", ""}, {"", "powersave", ""}});
  CHECK(facts.num_nodes == 2);
  CHECK(facts.huge_pages == "never");
  CHECK(facts.total_memory == 1000 * 1024);
  CHECK(facts.available_memory == 102400);
  CHECK(facts.is_limited);
  CHECK(facts.total_swap - facts.free_swap == 30 * 1024);
  CHECK(facts.overcommit == 2);
  CHECK(facts.load_average == 1.25);
  CHECK(facts.cgroup_cpus == 1.5);
  CHECK(facts.num_cpus > 0);
  CHECK_FALSE(facts.kernels.empty());
  // Where nothing can be read, nothing is claimed.
  const MachineFacts nothing = machine_facts(root / "none");
  CHECK(nothing.rules.empty());
  CHECK(nothing.huge_pages.empty());
  CHECK(nothing.num_nodes == 0);
}

TEST_CASE("doctor: systemd's units") {
  CHECK(judge_units({}).empty());  // none is installed
  const auto runs = judge_units(units(false, "active", "active"));
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].grade == Grade::fine);
  CHECK_THAT(runs[0].found, Contains("troupe.socket active (x), enabled; troupe.service active"));
  CHECK_FALSE(waits_for_connections(units(false, "active", "active")));
  CHECK(waits_for_connections(units(false, "active", "inactive")));
  CHECK_FALSE(waits_for_connections(units(false, "inactive", "inactive")));

  const Finding failed = complaint(judge_units(units(false, "active", "failed")));
  CHECK(failed.grade == Grade::broken);
  CHECK_THAT(failed.found, Contains("exit-code"));
  CHECK_THAT(failed.remedy, Contains("sudo journalctl -u troupe") && Contains("sudo systemctl restart troupe.socket"));
  CHECK_THAT(complaint(judge_units(units(true, "failed", "inactive"))).remedy,
             Contains("journalctl --user -u troupe") && Contains("systemctl --user restart"));
  CHECK_THAT(judge_units(units(false, "inactive", "inactive"))[0].remedy, Contains("enable --now troupe.socket"));

  UnitFacts restarted = units(false, "active", "active");
  restarted.service["NRestarts"] = "3";
  CHECK_THAT(complaint(judge_units(restarted)).found, Contains("restarted 3 times"));
  UnitFacts leaves = units(true, "active", "active");
  leaves.lingers = false;
  CHECK_THAT(complaint(judge_units(leaves)).remedy, Contains("enable-linger"));
}

TEST_CASE("doctor asks systemctl where systemd runs, and takes what it cannot say for nothing") {
  const TempFolder folder;
  const std::filesystem::path root = folder.path();
  CHECK(unit_facts(root).empty());  // no systemd
  std::filesystem::create_directories(root / "run/systemd/system");
  write(root / "bin/systemctl",
        "#!/bin/sh\n[ \"$1\" = --system ] || exit 1\n"
        "printf 'Id=troupe.socket\\nLoadState=loaded\\nActiveState=active\\n\\n'\n"
        "printf 'Id=troupe.service\\nLoadState=loaded\\nActiveState=inactive\\n'\n");
  REQUIRE(::chmod((root / "bin/systemctl").c_str(), 0755) == 0);
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", ((root / "bin").string() + ":" + before).c_str(), 1);
  const auto facts = unit_facts(root);
  ::setenv("PATH", before.c_str(), 1);
  REQUIRE(facts.size() == 2);
  CHECK_FALSE(facts[0].is_user);
  CHECK(waits_for_connections(facts[0]));
  CHECK(facts[1].is_user);
  CHECK(facts[1].socket.empty());
  CHECK_FALSE(facts[1].lingers);
  CHECK(judge_units(facts[1]).empty());
}

TEST_CASE("doctor: sockets, and why one does not let this user in") {
  using State = SocketFacts::State;
  const std::string program = "troupe 1.0.0";
  const auto judge = [&](const SocketFacts& facts) { return judge_socket(facts, "alice", program); };
  CHECK(judge(at(State::absent)).empty());
  CHECK(exit_code(judge(at(State::waiting))) == 0);
  CHECK_THAT(complaint(judge(at(State::nobody_listens))).found, Contains("no server listens"));

  SocketFacts forbidden = at(State::forbidden);
  CHECK(exit_code(judge(forbidden)) == 1);
  forbidden.is_named = true;
  CHECK(exit_code(judge(forbidden)) == 2);
  CHECK(complaint(judge(forbidden)).remedy == "`sudo adduser alice troupe`, and log in again");
  forbidden.is_member = true;
  CHECK(complaint(judge(forbidden)).remedy == "log in again, or `newgrp troupe`");
  forbidden.has_group = true;
  CHECK_THAT(complaint(judge(forbidden)).remedy, Contains("--allow-group"));
  CHECK(exit_code(judge(forbidden)) == 2);

  SocketFacts refused = at(State::refused);
  refused.problem = "may not use this server";
  CHECK(complaint(judge(refused)).found == "may not use this server");

  SocketFacts answers = at(State::answers);
  answers.server = program;
  answers.health = "ready";
  CHECK(exit_code(judge(answers)) == 0);
  answers.is_replaced = true;
  CHECK_THAT(complaint(judge(answers)).found, Contains("whose file was replaced"));
  answers.is_replaced = false;
  answers.server = "troupe 0.9.0";
  CHECK_THAT(complaint(judge(answers)).found, Contains("is troupe 0.9.0; this is troupe 1.0.0"));
  answers.server = program;
  answers.is_healthy = false;
  CHECK(complaint(judge(answers)).grade == Grade::broken);
}

TEST_CASE("doctor: the report in text and in JSON") {
  const std::vector<Finding> findings{{"memory", Grade::fine, "much"},
                                      {"load", Grade::advice, "high", "end programs"},
                                      {"socket", Grade::broken, "a\x1b[31mb"}};
  CHECK(findings_text(findings, false) ==
        "ok      memory         much\n"
        "advice  load           high\n"
        "                       -> end programs\n"
        "broken  socket         a\\x1b[31mb\n"
        "1 broken, 1 could be better\n");
  CHECK_THAT(findings_text(findings, true), Contains("\x1b["));
  CHECK(exit_code(findings) == 2);
  const auto object = findings_json(findings);
  CHECK(object["grade"] == "broken");
  CHECK(object["findings"][1] ==
        nlohmann::ordered_json{{"topic", "load"}, {"grade", "advice"}, {"found", "high"}, {"remedy", "end programs"}});
  CHECK(object["findings"][0]["remedy"].is_null());
}
