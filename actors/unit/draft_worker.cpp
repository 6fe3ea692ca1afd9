#include "actors/unit/draft_worker.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "engine/drafting/model_drafter.h"

namespace troupe::actors {

struct DraftWorker::Runner {
  std::shared_ptr<const engine::LoadedModel> draft, target;
  engine::Team& team;
  std::unique_ptr<engine::Proposer> drafter;  // made by the first job, and by the next after one that threw

  engine::DraftReply run(const DraftWork& work) {
    engine::DraftReply reply;
    try {
      if (!drafter) drafter = engine::make_proposer(*draft, *target, team);
      for (const std::uint64_t request : work.closes) drafter->close(request);
      drafter->propose(work.asks, reply);
    } catch (const engine::Stopped&) {
      throw;
    } catch (...) {
      drafter.reset();  // it may be in the middle of a pass
      spdlog::error("a draft of {} sequences broke: {}", work.asks.size(), failure_of(std::current_exception()).what);
      reply = {};
      for (const engine::DraftAsk& ask : work.asks)
        reply.answers.push_back({.request = ask.request, .is_lost = true, .tokens = {}});
    }
    return reply;
  }
};

DraftWorker::DraftWorker(caf::actor_config& cfg, std::shared_ptr<const engine::LoadedModel> draft,
                         std::shared_ptr<const engine::LoadedModel> target, Compute& compute,
                         scheduler::JobSource source)
    : ActorBase(cfg, "draft worker"),
      compute_(compute),
      source_(source),
      runner_(std::make_shared<Runner>(Runner{
          .draft = std::move(draft), .target = std::move(target), .team = compute.team(), .drafter = nullptr})) {}

caf::behavior DraftWorker::make_behavior() {
  return {
      [this](const msg::Propose& propose) {
        const auto run = [runner = runner_, work = propose.work, asker = sender()] {
          try {
            auto reply = std::make_shared<const engine::DraftReply>(runner->run(*work));
            caf::anon_send(asker, msg::Proposed{work->number, std::move(reply)});
          } catch (const engine::Stopped&) {  // the server ends: no batcher waits
            runner->drafter.reset();
          }
        };
        compute_.post(source_, {.tenants = propose.work->tenants, .run = run});
      },
      msg::throw_for_test,
  };
}

}  // namespace troupe::actors
