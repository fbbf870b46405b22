// The table of familiar names and its lookup.
#include "config/familiar_names.h"

#include <algorithm>

#include "core/nearest_name.h"

namespace shiftron {
namespace {

// "--Micro-Batch-Size" without its dashes: "micro_batch_size".
std::string normal_form(std::string name) {
  for (char& c : name) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

const FamiliarName* find(const std::string& name, const std::vector<std::string>& known) {
  const auto row = std::ranges::find_if(familiar_names(), [&](const FamiliarName& one) {
    return name == one.name && std::ranges::find(known, one.target) != known.end();
  });
  return row == familiar_names().end() ? nullptr : &*row;
}

}  // namespace

const std::vector<FamiliarName>& familiar_names() {
  static const std::vector<FamiliarName> table = {
      // The model.
      {"num_layers", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"n_layers", "model.layers"},
      {"n_layer", "model.layers"},
      {"hidden_size", "model.hidden"},
      {"hidden_dim", "model.hidden"},
      {"d_model", "model.hidden"},
      {"dim", "model.hidden"},
      {"n_embd", "model.hidden"},
      {"num_attention_heads", "model.heads"},
      {"num_heads", "model.heads"},
      {"n_heads", "model.heads"},
      {"n_head", "model.heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"num_query_groups", "model.kv_heads"},
      {"num_kv_heads", "model.kv_heads"},
      {"n_kv_heads", "model.kv_heads"},
      {"kv_channels", "model.head_dim"},
      {"ffn_hidden_size", "model.ffn"},
      {"intermediate_size", "model.ffn"},
      {"ffn_dim", "model.ffn"},
      {"d_ff", "model.ffn"},
      {"vocab_size", "vocab"},
      {"vocab_size", "model.vocab"},
      {"padded_vocab_size", "model.vocab"},
      {"rotary_base", "model.rope_base"},
      {"rope_theta", "model.rope_base"},
      {"rms_norm_eps", "model.norm_epsilon"},
      {"norm_eps", "model.norm_epsilon"},
      {"layernorm_epsilon", "model.norm_epsilon"},
      {"tie_word_embeddings", "model.tie_embeddings"},
      {"enable_weight_tying", "model.tie_embeddings"},
      {"untie_embeddings_and_output_weights", "model.tie_embeddings", "false"},
      {"init_method_std", "model.init_std"},
      {"initializer_range", "model.init_std"},

      // Steps, batches and precision.
      {"train_iters", "train.steps"},
      {"train_steps", "train.steps"},
      {"max_steps", "train.steps"},
      {"max_iters", "train.steps"},
      {"num_steps", "train.steps"},
      {"train_samples", "train.steps"},
      {"num_train_epochs", "train.steps"},
      {"epochs", "train.steps"},
      {"exit_interval", "train.stop_at"},
      {"batch_size", "token-budget"},
      {"batch_size", "train.global_batch"},
      {"global_batch_size", "train.global_batch"},
      {"gradient_accumulation_steps", "train.global_batch"},
      {"batch_accumulation_per_replica", "train.global_batch"},
      {"micro_batch_size", "train.micro_batch"},
      {"local_batch_size", "train.micro_batch"},
      {"pipeline_parallel_microbatch_size", "train.micro_batch"},
      {"per_device_train_batch_size", "train.micro_batch"},
      {"per_device_eval_batch_size", "token-budget"},
      {"per_device_eval_batch_size", "train.micro_batch"},
      {"seq_length", "train.sequence_length"},
      {"seq_len", "train.sequence_length"},
      {"max_seq_length", "train.sequence_length"},
      {"max_seq_len", "train.sequence_length"},
      {"max_position_embeddings", "train.sequence_length"},
      {"block_size", "train.sequence_length"},
      {"context_length", "train.sequence_length"},
      {"bf16", "train.precision", "bf16"},
      {"fp32", "train.precision", "fp32"},
      {"fp16", "train.precision", "bf16"},
      {"dtype", "precision"},
      {"dtype", "train.precision"},
      {"torch_dtype", "train.precision"},
      {"mixed_precision", "train.precision"},
      {"mixed_precision_param", "train.precision"},
      {"random_seed", "train.seed"},
      {"data_seed", "train.seed"},
      {"deterministic_mode", "train.deterministic", "repeat"},
      {"full_determinism", "train.deterministic", "repeat"},

      // The optimizer and its schedule.
      {"lr", "optimizer.learning_rate"},
      {"max_lr", "optimizer.learning_rate"},
      {"adam_beta1", "optimizer.betas"},
      {"adam_beta2", "optimizer.betas"},
      {"beta1", "optimizer.betas"},
      {"beta2", "optimizer.betas"},
      {"adam_eps", "optimizer.epsilon"},
      {"adam_epsilon", "optimizer.epsilon"},
      {"optimizer.eps", "optimizer.epsilon"},
      {"wd", "optimizer.weight_decay"},
      {"clip_grad", "optimizer.clip"},
      {"grad_clip", "optimizer.clip"},
      {"max_grad_norm", "optimizer.clip"},
      {"max_norm", "optimizer.clip"},
      {"gradient_clipping", "optimizer.clip"},
      {"lr_scheduler", "optimizer.schedule"},
      {"lr_scheduler_type", "optimizer.schedule"},
      {"lr_decay_style", "optimizer.schedule"},
      {"decay_type", "optimizer.schedule"},
      {"lr_warmup_iters", "optimizer.warmup"},
      {"lr_warmup_steps", "optimizer.warmup"},
      {"lr_warmup_fraction", "optimizer.warmup"},
      {"warmup_iters", "optimizer.warmup"},
      {"warmup_steps", "optimizer.warmup"},
      {"warmup_ratio", "optimizer.warmup"},
      {"lr_decay_iters", "optimizer.decay_steps"},
      {"lr_decay_steps", "optimizer.decay_steps"},
      {"lr_wsd_decay_iters", "optimizer.decay_steps"},
      {"decay_ratio", "optimizer.decay_steps"},
      {"min_lr", "optimizer.final_fraction"},
      {"min_lr_factor", "optimizer.final_fraction"},
      {"min_decay_lr", "optimizer.final_fraction"},

      // Parallelism.
      {"tensor_model_parallel_size", "parallel.tp"},
      {"tensor_parallel_size", "parallel.tp"},
      {"tensor_parallel_degree", "parallel.tp"},
      {"tp_size", "parallel.tp"},
      {"pipeline_model_parallel_size", "parallel.pp"},
      {"pipeline_parallel_size", "parallel.pp"},
      {"pipeline_parallel_degree", "parallel.pp"},
      {"pp_size", "parallel.pp"},
      {"context_parallel_size", "parallel.cp"},
      {"context_parallel_degree", "parallel.cp"},
      {"num_layers_per_virtual_pipeline_stage", "parallel.chunks"},
      {"num_virtual_stages_per_pipeline_rank", "parallel.chunks"},
      {"pipeline_parallel_schedule", "parallel.pipeline"},
      {"pp_engine", "parallel.pipeline"},
      {"use_distributed_optimizer", "parallel.zero", "1"},
      {"zero_stage", "parallel.zero"},
      {"recompute_granularity", "parallel.recompute"},
      {"recompute_layer", "parallel.recompute", "full"},
      {"recompute_activations", "parallel.recompute", "selective"},
      {"activation_checkpoint.mode", "parallel.recompute"},
      {"gradient_checkpointing", "parallel.recompute", "full"},
      {"ddp_bucket_size", "parallel.bucket_elements"},

      // Data.
      {"data_path", "data.train"},
      {"train_data_path", "data.train"},
      {"train_file", "data.train"},
      {"dataset", "data"},
      {"dataset", "data.train"},
      {"dataset_path", "data"},
      {"dataset_path", "data.train"},
      {"valid_data_path", "data.validation"},
      {"validation_file", "data.validation"},
      {"reset_position_ids", "data.document_reset", "true"},
      {"reset_attention_mask", "data.document_reset", "true"},
      {"tokenizer_model", "tokenizer"},
      {"model_type", "kind"},

      // Evaluation.
      {"eval_interval", "evaluation.every"},
      {"eval_steps", "evaluation.every"},
      {"val_check_interval", "evaluation.every"},
      {"eval_iters", "evaluation.sequences"},
      {"limit_val_batches", "evaluation.sequences"},
      {"num_fewshot", "fewshot"},
      {"num_fewshot", "evaluation.fewshot"},

      // Checkpoints and the run's files.
      {"save_interval", "checkpoint.every"},
      {"save_steps", "checkpoint.every"},
      {"checkpoint_interval", "checkpoint.every"},
      {"checkpoint.interval", "checkpoint.every"},
      {"save_total_limit", "checkpoint.keep"},
      {"keep_latest_k", "checkpoint.keep"},
      {"async_save", "checkpoint.asynchronous"},
      {"load", "checkpoint"},
      {"load", "checkpoint.resume"},
      {"load_step", "checkpoint.resume"},
      {"ckpt_step", "checkpoint.resume"},
      {"resume_from_checkpoint", "checkpoint.resume"},
      {"resume_checkpoint_path", "checkpoint.resume"},
      {"resume", "checkpoint.resume"},
      {"save", "output.directory"},
      {"checkpoint.folder", "output.directory"},
      {"checkpoints_path", "output.directory"},
      {"dump_folder", "output.directory"},
      {"out_dir", "output"},
      {"out_dir", "output.directory"},
      {"output_dir", "output"},
      {"output_dir", "output.directory"},
      {"output_path", "output"},
      {"output_path", "output.directory"},
      {"log_interval", "output.log_every"},
      {"log_freq", "output.log_every"},
      {"logging_steps", "output.log_every"},
      {"iteration_step_info_interval", "output.log_every"},
      {"distributed_timeout_minutes", "fault.step_deadline"},

      // Devices, models and texts.
      {"device", "device.kind"},
      {"cuda", "device.kind", "cuda"},
      {"gpu", "device.kind", "cuda"},
      {"num_threads", "threads"},
      {"num_threads", "device.threads"},
      {"config_file", "config"},
      {"config_path", "config"},
      {"ckpt", "checkpoint"},
      {"model", "checkpoint"},
      {"model_path", "checkpoint"},
      {"model_name_or_path", "checkpoint"},
      {"max_new_tokens", "tokens"},
      {"max_tokens", "tokens"},
      {"n_predict", "tokens"},
      {"temp", "temperature"},
  };
  return table;
}

std::string suggested_key(const std::string& name, const std::vector<std::string>& known, const std::string& dashes) {
  constexpr size_t kLongest = 200;  // as in nearest_name()
  const std::string normal = name.size() > kLongest ? "" : normal_form(name);
  const FamiliarName* row = find(normal, known);
  if (row == nullptr) row = find(normal.substr(normal.rfind('.') + 1), known);
  if (row == nullptr) return suggestion(name, known, dashes);
  const std::string value = row->value;
  const std::string between = dashes.empty() ? " = " : " ";
  return "; did you mean " + dashes + row->target + (value.empty() ? "" : between + value) + "?";
}

}  // namespace shiftron
