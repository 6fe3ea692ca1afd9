// Which models are in memory: they are loaded when a request asks for them, and put out for others.
//
// A request for a model that is not loaded waits. The first one has it loaded, later ones wait for the same load. While
// several models are waited for that do not fit together, they have turns.
//
// A turn. A loaded model whose memory is needed for one that is waited for keeps it
//   - for kTurnLoads times the seconds that its load took, while it is used: so at most 1 / (1 + kTurnLoads) of the
//     time of any place in memory goes into loads, whatever is asked for. In between it may stand unused for
//     kPatienceLoads of its load: a client that calls a tool is back soon, and the model would have to be loaded again;
//   - then as long as the tenants that use it have been served less than the one that waits, so that turns are long or
//     short by the tenants' weights; but no longer than kMaxTurnLoads times its load.
// At its end new requests wait, and those that run have drain_seconds to end. If the memory is not needed any more
// meanwhile, the model is open again.
//
// Whose turn is next. Of the models that are waited for
//   1. none that was loaded since another one has been waited for goes before that one. So a wait is bounded, whatever
//      is asked for: by one turn, drain and load of each other model, and its own load;
//   2. of these one with the tenant that was served least, over all models (ServedTime), or little more: the longest of
//      their loads. Loads are charged to the tenant whose turn they begin, also those that fail, so one that asks for
//      a model after the other waits longer than one that stays with its model;
//   3. of these the one with the most waiting work for each second of its load.
// A model that is not next is loaded before it only into memory that the next one does not need.
//
// What is put out. As few models as suffice whose turns are over: idle ones, the least recently used first, then those
// whose tenants were served most. A model without a request for its keep-alive goes in any case. Never a pinned one;
// and for a tenant that may load into idle memory only (MayLoad::idle) none that another tenant has used within its
// keep-alive and within kIdleSeconds: one request keeps no memory for ever. Such a tenant's wait is behind all that
// have turns: it has no bound but max_wait_seconds, and holds up no other tenant's.
//
// A load that fails is not tried again for kFirstBackoffSeconds, and twice as long after each further failure: a broken
// file does not keep the disk busy. Until then requests for the model are refused, with the reason and the time.
//
// Plain logic: time is an argument, in seconds of any clock, never lower than in an earlier call. The same calls have
// the same decisions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cache/ids.h"
#include "scheduler/outcome.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/served_time.h"
#include "scheduler/shares/shared_limit.h"
#include "scheduler/shares/tenant.h"

namespace troupe::scheduler {

using ModelNumber = std::uint32_t;  // the caller's id of a model

inline constexpr double kForever = std::numeric_limits<double>::infinity();

struct ResidencyOptions {
  std::uint64_t budget_bytes = 0;                                        // of all models together
  std::uint32_t max_models = std::numeric_limits<std::uint32_t>::max();  // in memory at a time
  std::uint32_t max_loading = 1;  // at a time: one more divides the disk and the memory's bandwidth
  // Requests that wait; a tenant's share as of any SharedLimit. Those that have no turns (MayLoad::idle, never) may be
  // half of them together: they may wait for long, and no other tenant is refused for them.
  std::uint32_t max_waiting = 512;
  double max_wait_seconds = 600;  // then a request is refused, with a time to come back
  double drain_seconds = 60;      // for requests that run when their model's turn ends
};

// What is known of a model before it is loaded.
struct ModelFacts {
  std::string name;              // for messages
  std::uint64_t bytes = 0;       // the least that it can be served with
  double load_seconds = 0;       // an estimate, above 0 (asserted), until a load was measured
  double keep_alive = kForever;  // seconds without a request, then it is put out
  bool pinned = false;           // never put out
};

// A request for a model.
struct ModelAsk {
  RequestNumber request = 0;  // unique among those that have not ended
  ModelNumber model = 0;
  Tenant tenant{};
  MayLoad may_load = MayLoad::turns;
  double work_seconds = 1;  // an estimate of its computing, above 0
};

enum class UnloadReason : std::uint8_t { keep_alive, room, turn };  // room: it was idle

// What the caller has to do, in the order of the members.
struct Decisions {
  struct Load {
    ModelNumber model = 0;
    TenantId tenant{};  // whose turn it is, and who is charged
    friend bool operator==(const Load&, const Load&) = default;
  };
  struct Unload {
    ModelNumber model = 0;
    UnloadReason why = UnloadReason::keep_alive;
    bool has_running = false;  // requests that did not end within drain_seconds: to be ended
    friend bool operator==(const Unload&, const Unload&) = default;
  };
  struct Refused {
    RequestNumber request = 0;
    Refusal refusal;
  };
  std::vector<RequestNumber> serve;  // they wait no more: hand them to their model
  std::vector<Refused> refuse;       // they have ended
  std::vector<Unload> unload;        // to be answered by unload_ended()
  std::vector<Load> load;            // to be answered by load_ended() or load_failed()
  double ask_at = kForever;          // call decide() again then, if nothing else happens before
};

// Why a request waits, for its progress and the log.
struct ModelWait {
  enum class Why : std::uint8_t {
    load,   // its model is being loaded
    turn,   // another model's turn is not over, or its requests drain
    queue,  // other models are loaded before
    room,   // others use the memory, and its tenant may not put their models out
  };
  Why why = Why::load;
  double seconds = 0;               // an estimate; infinite: none
  double progress = 0;              // of its load, by the time that it should take: 0 to 1
  std::optional<ModelNumber> on{};  // turn: the model whose turn it is, the last one to go
  std::uint32_t models_before = 0;  // queue: that are loaded before
};

// Not thread-safe. decide() and wait_of() are O(w m log m + w^2 + waiting requests) with m models, w of them waited
// for; decide() is w times that in the moment in which waits end for max_wait_seconds. The others are O(m), and
// O(requests that wait for the model).
class ModelResidency {
 public:
  static constexpr double kTurnLoads = 4, kMaxTurnLoads = 16, kPatienceLoads = 0.25;
  static constexpr double kIdleSeconds = 300;        // a model that stood unused for so long is anyone's to put out
  static constexpr double kUnknownWaitSeconds = 60;  // told to a request that was late, where there is no estimate
  static constexpr double kFirstBackoffSeconds = 5, kLongestBackoffSeconds = 300;
  static constexpr double kShareSeconds = 300;  // of loading_share()

  // served: the counters by which turns are given, to which loads are charged, and in which a tenant is active while it
  // waits here. Others charge computing to them, and are not called at the same time as this class.
  ModelResidency(ResidencyOptions options, std::shared_ptr<ServedTime> served);

  // A model that is not in memory, under a new number (asserted).
  void add(ModelNumber model, ModelFacts facts);
  // Forgets a model that is not in memory (asserted). Returns the requests that wait for it: they have ended here, and
  // the caller refuses them.
  [[nodiscard]] std::vector<RequestNumber> remove(ModelNumber model);
  // What it turned out to need, from its next load on.
  void set_bytes(ModelNumber model, std::uint64_t bytes) { at(model).facts.bytes = bytes; }
  // With less than what is in memory, models are put out only as others are waited for.
  void set_budget(std::uint64_t bytes) { options_.budget_bytes = bytes; }

  enum class Answer : std::uint8_t { serve, wait };
  // serve: hand it to its model now. wait: decide() says when, or refuses it. Refused: it has ended.
  //   permission     its tenant may not have the model loaded, and nobody waits for it who may
  //   never_fits     the model is larger than the budget, or than what pinned models leave
  //   loading        its last load failed, and it is too early for the next: with the reason, and when that is
  //   queue_full, quota  as SharedLimit, of requests that wait
  [[nodiscard]] std::variant<Answer, Refusal> ask(const ModelAsk& ask, double now);
  // The model has taken the request over, which waited: in `served` its tenant is active there. Until then it is active
  // here, as one that is not for a moment loses what it was served less. Ignored of other requests.
  void began(RequestNumber request);
  // A request that waits or is served has ended, as it will once (asserted).
  void ended(RequestNumber request, double now);

  // The load has ended so many seconds after it began, and the model takes so many bytes.
  void load_ended(ModelNumber model, std::uint64_t bytes, double seconds, double now);
  // The requests that wait for it are refused by the next decide(). why: one line, without a full stop.
  void load_failed(ModelNumber model, const std::string& why, double seconds, double now);
  // It takes no memory any more. Its requests have ended (asserted).
  void unload_ended(ModelNumber model, double now);

  // It could not be put out as decide() said: it stays loaded.
  void unload_refused(ModelNumber model, double now);

  // What an operator does, not a request: a model that is not in memory (asserted) is being loaded, or one that is
  // loaded (asserted) is being put out. To be answered as if decide() had said so; no tenant is charged.
  void load_began(ModelNumber model, double now);
  void unload_began(ModelNumber model, double now);

  // To be called after each of the above, and at ask_at.
  [[nodiscard]] Decisions decide(double now);

  // Of a request that waits (asserted).
  [[nodiscard]] ModelWait wait_of(RequestNumber request, double now) const;

  enum class State : std::uint8_t { out, loading, loaded, closing, leaving };  // closing: its requests drain
  [[nodiscard]] State state(ModelNumber model) const { return at(model).state; }
  [[nodiscard]] std::uint32_t num_running(ModelNumber model) const { return at(model).num_running; }
  [[nodiscard]] std::size_t num_waiting(ModelNumber model) const { return at(model).waiting.size(); }
  [[nodiscard]] double last_used(ModelNumber model) const { return at(model).last_used; }
  [[nodiscard]] double load_seconds(ModelNumber model) const { return at(model).facts.load_seconds; }
  [[nodiscard]] std::uint64_t bytes_in_memory() const;
  // The part of the last minutes in which a model was loading, a mean that decays over kShareSeconds. Above
  // 1 / (1 + kTurnLoads) for long, models are asked for that are not used for their turn: more memory, or fewer models.
  [[nodiscard]] double loading_share(double now) const;

 private:
  struct Model {
    ModelFacts facts;
    State state = State::out;
    std::uint64_t bytes = 0;  // in memory
    double began_at = 0;      // the load, or the closing
    double loaded_at = 0, last_used = 0;
    double load_cost = 0;                            // of the last load
    double usual_run = 0;                            // seconds of a request, a decayed mean
    std::optional<TenantId> asker{};                 // of the load that runs
    std::uint64_t last_load = 0, waiting_since = 0;  // on order_
    std::uint32_t num_running = 0;
    std::uint32_t num_failures = 0;  // in a row
    double retry_at = 0;
    std::string why_failed{};
    std::vector<RequestNumber> waiting{};         // oldest first
    std::map<TenantId, std::uint32_t> running{};  // requests
    // The last two tenants that used it, and when: latest first. Whether another than one tenant did follows from two.
    std::array<std::pair<std::optional<TenantId>, double>, 2> used{};

    [[nodiscard]] bool is_in_memory() const { return state != State::out; }
    [[nodiscard]] bool is_loaded() const { return state == State::loaded || state == State::closing; }
    [[nodiscard]] double min_turn_ends() const { return loaded_at + kTurnLoads * load_cost; }
    [[nodiscard]] double max_turn_ends() const { return loaded_at + kMaxTurnLoads * load_cost; }
    void use(TenantId tenant, double now);
    [[nodiscard]] double idle_after() const { return std::min(facts.keep_alive, kIdleSeconds); }
    [[nodiscard]] bool was_used_by_others(TenantId tenant, double now) const;
  };
  struct Request {
    ModelNumber model = 0;
    TenantId tenant{};
    MayLoad may_load = MayLoad::never;
    double work = 1;
    double since = 0;  // it waits, or runs
    bool waits = false;
    bool is_active = false;  // in served_, for this class
  };
  // Who may have a model loaded that is waited for, and what has to go for it.
  struct Asker {
    TenantId tenant{};
    MayLoad may_load = MayLoad::never;
    double served = 0;
  };
  struct Plan {
    ModelNumber model = 0;
    Asker asker;
    double work_per_load_second = 0;
    bool is_possible = false;  // the models that may go suffice
    bool is_ready = false;     // and their turns are over
    double ready_at = 0;       // when that may be otherwise
    std::vector<ModelNumber> victims{};
  };
  struct Turn {
    bool is_over = false;
    double ask_at = kForever;
  };

  Model& at(ModelNumber model) { return models_.at(model); }
  [[nodiscard]] const Model& at(ModelNumber model) const { return models_.at(model); }
  void advance(double now);
  void begin_load(ModelNumber number, std::optional<TenantId> asker, double now);
  void run(Request& request, double now);
  void deactivate(Request& request);
  void forget(RequestNumber request);
  void drop_waiting(Model& model, const Refusal& refusal, Decisions& out);
  void release(Model& model, double now, Decisions& out);
  void put_out(ModelNumber number, UnloadReason why, Decisions& out);

  [[nodiscard]] std::optional<Refusal> why_not(const Model& model, double now) const;
  [[nodiscard]] Refusal not_allowed(const Model& model) const;
  [[nodiscard]] std::uint64_t most_bytes_for(const Model& model) const;
  [[nodiscard]] std::optional<Asker> asker_of(const Model& model) const;
  [[nodiscard]] Turn turn_of(const Model& model, const Asker& asker, double now) const;
  [[nodiscard]] bool may_put_out(const Model& model, const Asker& asker, double now) const;
  [[nodiscard]] double least_served_of(const Model& model) const;
  [[nodiscard]] Plan plan_for(ModelNumber number, const Asker& asker, double now) const;
  void append_in_order(std::vector<Plan> left, std::vector<Plan>& ordered) const;
  [[nodiscard]] std::vector<Plan> plans(double now) const;

  void refuse_hopeless(double now, Decisions& out);
  std::optional<Refusal> take_place(const ModelAsk& ask);
  void give_place_back(const Request& request);
  void expire(double now, Decisions& out);
  void make_room(const Plan* next, double now, Decisions& out);
  void load_what_fits(const std::vector<Plan>& all, double now, Decisions& out);
  void ask_again(const std::vector<Plan>& all, double now, Decisions& out) const;

  ResidencyOptions options_;
  const std::shared_ptr<ServedTime> served_;
  std::map<ModelNumber, Model> models_;
  std::map<RequestNumber, Request> requests_;
  SharedLimit waiting_limit_;
  SharedLimit idle_waiting_limit_;   // of those without turns
  std::optional<ModelNumber> next_;  // for which models are closing or leaving
  std::uint64_t order_ = 0;          // counts loads and waits
  std::uint32_t num_loading_ = 0;
  double share_ = 0, share_at_ = 0;  // loading_share() at share_at_
};

}  // namespace troupe::scheduler
