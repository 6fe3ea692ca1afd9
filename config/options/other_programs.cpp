#include "config/options/other_programs.h"

#include <algorithm>

#include "config/options/values.h"

namespace troupe::config {
namespace {

using Row = AdviceRow;

constexpr std::uint32_t kAll = ~0u;
constexpr std::uint32_t kServe = bit(Command::serve);
constexpr std::uint32_t kStoreCommands =
    bit(Command::pull) | bit(Command::list) | bit(Command::rm) | bit(Command::prune);
// Those that read a model file.
constexpr std::uint32_t kModelCommands = kServe | bit(Command::verify) | bit(Command::bench) | bit(Command::eval) |
                                         bit(Command::perplexity) | bit(Command::tokenize) | bit(Command::inspect) |
                                         bit(Command::probe) | bit(Command::tools) | bit(Command::schema) |
                                         bit(Command::doctor);

constexpr Row kFlags[] = {
    {kAll, "-ngl --n-gpu-layers --gpu-layers -dev --device -sm --split-mode -ts --tensor-split -mg --main-gpu",
     "troupe computes on CPUs only; leave it out"},
    {kAll, "-cmoe --cpu-moe -ncmoe --n-cpu-moe -nkvo --no-kv-offload -fit --fit --enforce-eager --cpu-offload-gb",
     "troupe computes on CPUs only; leave it out"},
    {kAll, "-tp --tensor-parallel-size -pp --pipeline-parallel-size -dp --data-parallel-size",
     "one process computes, on CPUs; leave it out"},
    {kAll, "-fa --flash-attn", "attention is always computed block by block; leave it out"},
    {kAll, "--mlock",
     "weights are in the server's own memory and are not locked there; MemorySwapMax=0 of its unit keeps them out of "
     "swap"},
    {kAll, "--mmap --no-mmap -lm --load-mode",
     "the model file is read at load and not needed afterwards; leave it out"},
    {kAll, "--numa",
     "one team of threads computes; `numactl --cpunodebind=N --membind=N troupe ...`, or AllowedCPUs= of a unit, keeps "
     "it on one node"},
    {kAll, "-tb --threads-batch", "prompts and answers are computed by the same threads (-t); leave it out"},
    {kAll, "-cb --cont-batching -nocb --no-cont-batching", "requests are always batched; leave it out"},
    {kAll, "--cache-prompt --cache-reuse --enable-prefix-caching",
     "common prompt prefixes are always computed once; leave it out"},
    {kAll, "--gpu-memory-utilization", "--memory SIZE is the budget for weights and KV cache"},
    {kAll, "-hff --hf-file -mu --model-url",
     "`troupe pull` fetches a model: ORG/NAME:FILE.gguf of a hub, or https://HOST/FILE.gguf; -m takes its name then"},
    {kAll & ~kModelCommands, "-hf -hfr --hf-repo",
     "`troupe pull ORG/NAME` fetches a model; `troupe serve -m ORG/NAME` serves it, and `troupe model load ORG/NAME` "
     "while a server runs"},
    {kClientCommands, "--host --port",
     "the programs of troupe reach a server through its Unix socket, not over TCP: --socket PATH, or "
     "TROUPE_HOST=unix:///PATH"},
    {kAll, "--host --port", "troupe listens on a Unix socket; --listen tcp://127.0.0.1:8080 adds a TCP address"},
    {kAll & ~bit(Command::load), "--api-key --api-key-file",
     "on the Unix socket the kernel says who is calling (--allow-user NAME); keys for clients over TCP are made with "
     "`troupe key add NAME`"},
    {kAll, "-sysf --system-prompt-file", "--system takes the text itself: --system \"$(cat FILE)\""},
    {kAll & ~bit(Command::run) & ~bit(Command::chat), "-sys --system-prompt",
     "messages are a client's: `troupe chat --system TEXT`, `troupe run --chat --system TEXT`"},
    {kAll & ~kServe & ~bit(Command::inspect), "--chat-template --chat-template-file",
     "the server makes prompts of messages: `troupe serve --chat-template FILE`"},
    {kAll, "--jinja", "chat templates are always Jinja; leave it out"},
    {kAll, "-cnv --conversation -i --interactive -if --interactive-first", "`troupe chat` is a conversation"},
    {kAll, "-no-cnv --no-conversation", "`troupe run` continues the text of the prompt; leave it out"},
    {kTextCommands, "-p --prompt", "the arguments are the text: troupe run \"Once upon a time\""},
    {kClientCommands & ~bit(Command::verify) & ~bit(Command::doctor), "-m --model",
     "the server has the models: `troupe serve -m FILE`, or `troupe model load FILE` while it serves"},
    {kServe, "--enable-chunked-prefill", "prompts are always computed in parts (--max-stall); leave it out"},
    {kServe, "-to --timeout",
     "--stall-timeout is for clients that read nothing, --keep-alive-timeout for idle HTTP connections"},
    {kServe, "--threads-http --api-server-count", "one thread speaks to all clients; leave it out"},
    {kServe, "--models-autoload --no-models-autoload",
     "the models of --models-dir are loaded once a request asks for them; those of -m at the start; leave it out"},
    {kServe, "--models-preset", "a [[model]] table of troupe.toml has the keys of each model"},
    {kServe, "--sleep-idle-seconds",
     "--keep-alive TIME puts models that were loaded on request out of memory; --idle-exit TIME ends a server that its "
     "socket starts again"},
    {kServe, "--enable-auto-tool-choice --tool-call-parser",
     "how a model writes calls of tools is found from its chat template; --tool-format NAME says it"},
    {kServe, "--reasoning-parser --reasoning-format",
     "the markers of reasoning are found when the model is loaded; leave it out"},
    {kServe, "--webui --no-webui --ui --no-ui", "the page is at / of a server with --listen; leave it out"},
    {kServe, "--generation-config --override-generation-config",
     "what requests leave out is as the model's file names it, or a [model.defaults] table of troupe.toml"},
    {kAll, "--trust-remote-code --tokenizer", "a GGUF file has all of the model, its vocabulary, too; leave it out"},
    {kServe, "-ub --ubatch-size", "a step has one size: -b TOKENS"},
    {kServe, "--slots --no-slots --slots-endpoint",
     "`troupe top` shows what runs; `troupe status --json` says it to programs; leave it out"},
    {kServe, "--slot-save-path", "--sessions-dir DIR keeps conversations"},
    {kAll, "--embeddings --embedding --reranking --rerank",
     "vectors come from any server: `troupe embed TEXT`, POST /v1/embeddings; leave it out"},
    {kAll, "-mm --mmproj --mmproj-url --no-mmproj --limit-mm-per-prompt",
     "models read and write text only; leave it out"},
    {kAll & ~bit(Command::pull), "--dtype --quantization -q",
     "weights are computed as the file has them; the KV cache's numbers are chosen with --kv-type"},
    {kAll & ~bit(Command::run) & ~bit(Command::chat) & ~kStoreCommands, "--system",
     "messages are a client's: `troupe chat --system TEXT`, `troupe run --chat --system TEXT`"},
    {kAll, "--override-kv --override-tensor -ot",
     "the file's metadata counts: correct it there (gguf-py's gguf_set_metadata.py); -c sets the context"},
    {kServe, "--metrics", "GET /metrics and `troupe status --prometheus` give them; leave it out"},
    {kServe, "--enable-log-requests --disable-log-requests --disable-uvicorn-access-log",
     "--access-log FILE writes a line for each request, without its text; none is written unless asked for"},
    {kServe, "-lv --verbosity --log-verbosity", "--log-level says how much is logged"},
    {kAll, "--lora --lora-scaled --enable-lora", "this version has no adapters"},
    {kAll & ~bit(Command::run), "-j --json-schema -jf --json-schema-file",
     "a schema is a request's: troupe run -jf FILE, response_format over HTTP"},
    {kAll & ~bit(Command::run), "--grammar --grammar-file",
     "a grammar is a request's: troupe run --grammar-file FILE, grammar over HTTP"},
    {kAll, "--mirostat --typical --xtc-probability --dry-multiplier",
     "this version has none of mirostat, typical, XTC and DRY sampling"},
};

constexpr Row kSubcommands[] = {
    {kAll, "ls", "`troupe list` shows the models that were pulled, `troupe model ls` those of the server"},
    {kAll, "ps", "`troupe status` and `troupe top` show what runs"},
    {kAll, "stop",
     "`troupe model unload NAME` takes a model away; Ctrl-C, `kill` or `systemctl --user stop troupe.socket "
     "troupe.service` ends a server, which finishes what runs"},
    {kAll, "show", "`troupe model info NAME` shows a model of the server, `troupe inspect -m FILE` a file"},
    {kAll, "cp push create",
     "models are files here: `troupe pull` fetches them, `troupe rm` removes them, and nothing else changes them"},
};

bool has_word(std::string_view words, std::string_view word) {
  const std::vector<std::string> all = split(words, ' ');
  return std::find(all.begin(), all.end(), word) != all.end();
}

}  // namespace

std::span<const AdviceRow> flags_of_others() { return kFlags; }
std::span<const AdviceRow> subcommands_of_others() { return kSubcommands; }

std::string_view advice_on_flag(Command command, std::string_view flag) {
  for (const Row& row : kFlags)
    if ((row.commands & bit(command)) != 0 && has_word(row.names, flag)) return row.advice;
  return {};
}

std::string_view advice_on_subcommand(std::string_view name) {
  for (const Row& row : kSubcommands)
    if (has_word(row.names, name)) return row.advice;
  return {};
}

}  // namespace troupe::config
