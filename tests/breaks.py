"""Deliberate breaks of the code, each of which a test must catch: make test-breaks.

A break that is not caught is a hole in the tests. Where the code has moved on, the script says which break to write anew.
"""

import importlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "torchvision", "timm", "lightning", "faiss", "openTSNE", "plotly.io", "pyarrow.parquet")
NEEDED += ("pytorch_metric_learning", "scipy.stats", "sklearn.manifold")

# (file below src/obdsd, text that is there exactly once, text in its place, tests of which one must fail, what is broken)
# fmt: off
BREAKS = [
    ("method/diffusion.py", "    S.diagonal().add_(isolated)\n", "",
     "method/test_diffusion.py::test_transitions_equal_their_literal_definitions", "an isolated row gets no self-loop"),
    ("method/diffusion.py", "start, S = (1 - omega) * state.to(working)", "start, S = state.to(working)",
     "method/test_diffusion.py::test_closed_form_is_where_the_walk_converges", "the walk lacks its factor 1-ω"),
    ("method/diffusion.py", '.fill_diagonal_(float("-inf"))', "",
     "method/test_diffusion.py::test_transitions_equal_their_literal_definitions", "the softmax walk keeps its diagonal"),
    ("method/diffusion.py", "_judged(A, asymmetry, failed, tolerance=2e-2 if transition.dtype in HALF else 1e-4)", "A",
     "method/test_checks.py", "whatever is called symmetric is believed to be"),
    ("method/checks.py", "1e-18 <= temperature <= 1e18", '0 < temperature < float("inf")',
     "method/test_checks.py", "a temperature whose quotient is no number"),
    ("method/checks.py", "    _LATE.append((arrived, values.to(\"cpu\", non_blocking=True), judge))\n", "",
     "method/test_checks.py::test_elsewhere_the_verdict_on_a_walk_comes_late_but_comes", "a device's verdict is never heard"),
    ("method/distillation.py", "self.temperature**2 * weight", "self.temperature * weight",
     "method/test_distillation.py::test_the_term_is_temperature_squared_times_ramp_times_weight_times_kl", "τ instead of τ²"),
    ("method/distillation.py", '(progress if self.ramp == "linear" else 1.0)', "1.0",
     "method/test_distillation.py::test_the_term_is_temperature_squared_times_ramp_times_weight_times_kl", "the weight does not grow"),
    ("method/distillation.py", "    @torch.no_grad()\n    def taught", "    def taught",
     "method/test_distillation.py::test_no_gradient_reaches_the_teacher", "the teacher learns from the student"),
    ("method/distillation.py", "student, teacher = student[teacher.known], teacher.only_known()",
     "teacher = TeacherBatch(teacher.embeddings)",
     "method/test_distillation.py::test_unknown_rows_leave_both_sides_before_any_target", "rows that nobody knows teach"),
    ("method/targets.py", "P.mean(dim=0, keepdim=True)", "P.mean(dim=1, keepdim=True)",
     "method/test_targets.py::test_controls_by_hand", "a mean over columns for the mean row"),
    ("method/targets.py", "return balance(self.targets(teacher, temperature))", "return self.targets(teacher, temperature)",
     "method/test_targets.py", "balanced targets are not balanced"),
    ("method/teachers.py", "own.lerp(theirs, 1 - self.decay)", "own.lerp(theirs, self.decay)",
     "method/test_teachers.py::test_ema_is_the_running_average_of_weights_and_statistics", "the average follows by its decay"),
    ("method/teachers.py", "        super().update(student)\n        self._copy(student)\n", "        super().update(student)\n",
     "method/test_teachers.py::test_previous_epoch_is_the_model_of_the_last_update_and_no_later", "the previous epoch is not copied"),
    ("method/teachers.py", '        """Nothing of the student is copied."""\n', "        self._copy(student)\n",
     "method/test_teachers.py::test_a_frozen_teacher_never_changes_and_sees_transformed_inputs", "a frozen teacher becomes the student"),
    ("method/teachers.py", "known=None if self.seen is None else self.seen[indices], ", "",
     "method/test_teachers.py::test_memory_knows_each_sample_by_its_latest_embedding", "a memory teaches what it has not seen"),
    ("method/distillation.py", "scores.masked_fill(itself, -torch.inf)", "scores",
     "method/test_distillation.py::test_scores_that_do_not_sum_to_one_are_labels_of_a_list", "a row is in its own list"),
    ("method/targets.py", "(self.scale * D + self.shift).clamp(min=0)", "(self.scale * D + self.shift)",
     "method/test_targets.py::test_affine_scores_by_hand", "labels may be negative"),
    ("data/teachers.py", "table[seen] /= np.linalg.norm(table[seen], axis=1, keepdims=True)\n", "pass\n",
     "data/test_teachers.py::test_each_item_has_the_unit_row_of_its_name", "rows of a file keep their lengths"),
    ("data/teachers.py", "table[seen] = vectors.matrix[rows[seen]]", "table[seen] = vectors.matrix[: seen.sum()]",
     "data/test_teachers.py::test_each_item_has_the_unit_row_of_its_name", "rows are taken in the order of the file"),
    ("data/teachers.py", "super().__init__(table, None if bool(seen.all()) else seen, persistent=False)",
     "super().__init__(table, None, persistent=False)",
     "training/test_distilling.py::test_a_table_teaches_the_cosines_of_its_rows_to_the_items_that_it_has", "what has no row is taught"),
    ("data/teachers.py", "if not torch.equal(state.cpu(), self.get_extra_state()):", "if False:",
     "training/test_distilling.py::test_a_run_goes_on_with_the_rows_that_it_began_with_or_not_at_all", "a run goes on with another file"),
    ("data/transforms.py", "_with_seed(seed, self.shown, item)", "_with_seed(seed + 1, self.shown, item)",
     "data/test_transforms.py::test_a_teacher_is_shown_the_same_crop_and_flip_in_its_own_size", "a teacher sees another crop"),
    ("data/embeddings.py", "    notes |= {} if vectors.trained_on is None else {TRAINED_ON: json.dumps(vars(vectors.trained_on))}\n", "",
     "cli/test_seen.py::test_a_file_of_embeddings_must_not_come_from_a_model_that_has_seen_what_is_scored",
     "a file does not say what its model has seen"),
    ("training/trainer.py", "taught = self.teach(shown, indices, all_labels)", "taught = self.teach(inputs, indices, all_labels)",
     "training/test_distilling.py::test_a_larger_model_sees_the_students_crops_in_its_own_size", "a teacher sees what the student sees"),
    ("options.py", "        self._check_alone()\n", "",
     "test_options.py::test_what_cannot_be_is_refused_in_one_line", "a training that learns from nobody"),
    ("method/graph.py", "(pair[1:] == pair[:-1]).nonzero().squeeze(1)", "torch.arange(len(pair))",
     "method/test_graph.py::test_affinity_equals_the_literal_definition", "neighbours need not be mutual"),
    ("method/graph.py", "loops = weights.new_ones(len(alone))", "loops = weights.new_zeros(len(alone))",
     "method/test_graph.py::test_with_all_neighbours_the_transition_is_that_of_a_batch", "a sample without an edge gets no self-loop"),
    ("method/global_diffusion.py", "if not (self.fitted and teacher.steady):", "if True:",
     "training/test_systems.py", "a steady teacher is walked again"),

    ("objectives/samplers.py", "negative & (distances > d_ap) &", "negative &",
     "objectives/test_samplers.py::test_triplets_follow_the_literal_law", "semihard negatives may be nearer than the positive"),
    ("objectives/samplers.py", "(dim - 3) / 2 * outer.log()", "(dim - 2) / 2 * outer.log()",
     "objectives/test_samplers.py::test_distance_probabilities_of_the_oracle", "another density of distances"),
    ("objectives/samplers.py", "seed_of(self.seed, self.step)", "seed_of(self.seed)",
     "objectives/test_samplers.py::test_a_draw_is_a_function_of_seed_and_step", "every step draws the same"),
    ("objectives/objective.py", '[{"params": parameters, **self.optimiser}]', '[{"params": parameters}]',
     "objectives/test_losses.py::test_own_parameters_come_as_optimiser_groups_with_their_learning_rates", "β and proxies lose their rates"),
    ("objectives/s2sd.py", "self.distill(embeddings, z.detach(), progress)", "self.distill(z, embeddings.detach(), progress)",
     "objectives/test_s2sd.py::test_the_distillation_reaches_the_embeddings_only", "the embedding teaches the heads"),
    ("objectives/objective.py", '        labels = whole("labels", labels)\n', "",
     "objectives/test_losses.py", "labels may be fractions"),
    ("objectives/soft_triple.py", "self.centres, offset=1,", "self.centres, offset=0,",
     "objectives/test_proxies.py::test_spread_is_that_of_pytorch_metric_learning", "a centre counts as its own neighbour"),
    ("objectives/objective.py", "table[torch.unique(labels).to(table.device)]", "table",
     "objectives/test_proxies.py::test_the_proxies_of_some_classes", "proxies of classes that are not in the batch"),
    ("objectives/system.py", "        self.teacher.observe(indices, rows)\n", "",
     "training/test_teachers.py", "the memory is told nothing"),

    ("evaluation/scores.py", "checked(Points(embeddings, labels, groups))", "checked(Points(embeddings, labels))",
     "evaluation/test_evaluate.py::test_metrics_are_those_of_the_definitions", "groups are not looked at"),
    ("evaluation/retrieval.py", "np.maximum(ranking.rank, 1)", "np.maximum(ranking.relevant[:, None], 1)",
     "evaluation/test_evaluate.py::test_metrics_are_those_of_the_definitions", "MAP@R divides by R, not by the rank"),
    ("evaluation/geometry.py", "singular_values(embeddings)[skip:]", "singular_values(embeddings)",
     "evaluation/test_geometry.py::test_spectral_decay_of_the_oracle", "spectral decay skips nothing"),
    ("evaluation/retrieval.py", "groups if query is None else np.full(len(query.embeddings), -1)", "np.full(len(asked.embeddings), -1)",
     "evaluation/test_evaluate.py::test_a_row_never_finds_itself_but_finds_its_copies", "a query finds itself"),
    ("evaluation/scores.py", "counted.append(ranking.relevant > 0)", "counted.append(ranking.relevant >= 0)",
     "evaluation/test_evaluate.py::test_a_query_with_nothing_to_find_does_not_count", "a query with nothing to find counts"),

    ("data/check.py", "if shared and {one, other}", "if False and {one, other}",
     "data/test_check.py::test_what_cannot_be_trained_on_is_refused_and_named_by_a_check", "a class may be on both sides of the split"),
    ("data/check.py", '{"query", "gallery"} <= parts.keys()', '"test" not in parts',
     "data/test_check.py::test_query_and_gallery_are_scored_where_the_data_have_both", "a test part counts more than query and gallery"),
    ("data/check.py", "    chosen = _never_itself(name, chosen)\n", "",
     "cli/test_scored.py::test_a_query_that_the_gallery_holds_too_does_not_find_itself", "a query finds itself in the gallery"),
    ("data/check.py", "for marks in (names, [digest for part in parts for digest in part.digests()]):", "for marks in (names, names):",
     "data/test_check.py::test_an_item_of_both_query_and_gallery_never_finds_itself", "a query finds itself under another name"),
    ("data/check.py", "    if trained:\n        raise", "    if False:\n        raise",
     "cli/test_seen.py::test_items_that_trained_the_model_are_refused_under_any_name", "items that trained the model are scored"),
    ("data/check.py", "    if all(trained_on.parts.get(name)", "    if False and all(trained_on.parts.get(name)",
     "cli/test_seen.py::test_a_copy_across_the_line_is_no_reason_to_refuse_its_own_test", "a model is refused its own test"),
    ("cli/embed.py", "trained = run if embedder.trained_on is None else vars(embedder.trained_on)", "trained = run",
     "cli/test_seen.py::test_a_model_is_scored_on_the_same_classes_however_it_is_named", "a copied model is scored on another split"),
    ("data/items.py", "                content += file.read(SAMPLE)\n", "",
     "data/test_items.py::test_content_is_the_files_size_box_and_a_sample_of_its_bytes", "other pictures of equal size pass as unchanged"),
    ("data/benchmarks.py", "if number[c] <= half]", "if number[c] < half]",
     "data/test_cub200.py::test_official", "one class too few to train on"),
    ("data/noise.py", "random.integers(1, classes", "random.integers(0, classes",
     "data/test_noise.py", "a noisy label may be the true one"),
    ("data/batches.py", "        random = np.random.default_rng((self.seed, epoch))", "        random = np.random.default_rng(self.seed)",
     "data/test_batches.py::test_an_epoch_is_a_function_of_seed_and_epoch", "every epoch has the same batches"),
    ("data/batches.py", "draws[self.rank * share : (self.rank + 1) * share]", "draws[:share]",
     "data/test_batches.py::test_ranks_get_disjoint_slices_of_the_same_batch", "all processes get the same slice"),
    ("data/transforms.py", "(pixels.flip(-3) if self.flipped else pixels)", "pixels",
     "data/test_transforms.py::test_pixels_become_what_the_backbone_expects", "red first where blue is expected"),
    ("data/transforms.py", "seed_of(self.seed, draw.epoch, draw.batch, draw.position)", "seed_of(self.seed, draw.batch, draw.position)",
     "data/test_transforms.py::test_each_place_has_its_own_randomness", "every epoch crops alike"),
    ("data/items.py", 'f"{path}: cannot be read as an image', 'f"cannot be read as an image',
     "data/test_items.py::test_what_cannot_be_read_is_named", "a damaged file is not named"),
    ("data/part.py", "        digest.update(self.labels.tobytes())\n", "",
     "data/test_collection.py::test_a_fingerprint_changes_with_names_labels_order_and_contents", "other labels pass for the same data"),

    ("models/folder.py", 'trained_on=TrainedOn.read(record["trained_on"])', "trained_on=None",
     "models/test_folder.py::test_what_a_model_was_trained_on_stays_with_it_older_folders_say_nothing", "a model forgets what trained it"),
    ("training/run_folder.py", "model.trained_on.parts != data:", "False:",
     "cli/test_seen.py::test_a_report_shows_no_other_model_than_the_runs", "a report shows another model"),
    ("training/loop.py", "ranks.attempt(lambda: build.check_seen(options, collection, trainer.system, trainer.begun_as))", "[]",
     "cli/test_seen.py::test_a_teacher_must_not_have_seen_what_is_scored", "a teacher has seen the test classes"),
    ("training/verifying.py", "if one != other and not near:", "if False:",
     "training/test_verifying.py::test_a_number_that_does_not_follow_is_named", "numbers that differ agree"),
    ("training/verifying.py", "        scoring.remember({} if others else kept)\n", "        scoring.remember(kept)\n",
     "training/test_verifying.py::test_kept_rows_are_those_of_the_model", "scores are verified by rows that are not the model's"),
    ("data/manifests.py", "os.path.realpath(place) if os.path.islink(place) else place", "place",
     "data/test_manifests.py::test_no_link_leads_out_of_the_folder", "a link leads out of a manifest's folder"),
    ("data/items.py", "if box[2] > image.width or box[3] > image.height:", "if False:",
     "data/test_items.py::test_a_box_beyond_the_image_is_refused", "a box reaches beyond its image"),
    ("data/tables.py", "if size > max(SMALL, RATIO * on_disk):", "if False:",
     "data/test_tables.py::test_a_small_file_that_fills_the_memory_is_refused_before_it_does", "a small file may fill the memory"),
    ("data/tables.py", "return file.read(columns=wanted)", "return file.read()",
     "data/test_tables.py::test_what_is_not_used_is_not_read", "columns that are not used are read"),
    ("data/columns.py", "    if len(found) > 1:\n", "    if False:\n",
     "data/test_manifests.py::test_bad_manifests_are_refused_in_one_line", "of two columns that could be meant one is guessed"),
    ("data/manifests.py", "if path.startswith(os.path.join(root, \"\"))", "if False",
     "data/test_manifests.py::test_paths_are_below_the_root_however_they_are_written", "an absolute path below the root leaves it"),
    ("data/tensors.py", "weights_only=True", "weights_only=False",
     "data/test_embeddings.py::test_bad_embeddings_are_refused_in_one_line", "a .pt file runs its code"),
    ("data/tensors.py", "    check_inflated(path, value.numel() * value.element_size())", "    check_inflated(path, 0)",
     "data/test_embeddings.py::test_bad_embeddings_are_refused_in_one_line", "a short tensor may fill the memory"),
    ("data/unusable.py", "    searched = [kept[name].labels for name in", "    searched = [kept[name].labels[:1] for name in",
     "training/test_left_out.py::test_query_and_gallery_keep_one_numbering", "a class of the gallery is lost"),
    ("training/build.py", "    if not options.skip_unreadable:", "    if False:",
     "training/test_left_out.py::test_all_are_named_before_a_training_begins", "a broken image ends a training late"),
    ("training/run_folder.py", '({"left_out": left_out} if left_out else {})', "{}",
     "training/test_left_out.py::test_what_is_left_out_is_left_out_of_resume_verify_and_report", "a run does not say what it left out"),
    ("data/embeddings.py", 'or column.dtype.kind not in "biufUSO"', "",
     "data/test_embeddings.py::test_bad_embeddings_are_refused_in_one_line", "labels of compound types are taken"),
    ("errors.py", 'c if c.isprintable() else c.encode("unicode_escape").decode()', "c",
     "cli/test_data.py::test_names_of_files_do_not_steer_the_terminal", "a file's name steers the terminal"),
    ("experiments/comparison.py", r're.fullmatch(r"\w[\w.+-]*", str(row))', r're.fullmatch(r"[\w.+-]+", str(row))',
     "experiments/test_comparison.py::test_no_row_leads_out_of_a_comparisons_folder", "a row named .. leaves the folder"),
    ("files.py", "[_inert(cell) for cell in row] for row in rows", "rows",
     "experiments/test_comparison.py::test_no_cell_is_a_formula_to_a_spreadsheet", "a cell is a formula to a spreadsheet"),
    ("cli/__init__.py", 'errors="backslashreplace"', 'errors="strict"',
     "cli/test_locale.py::test_a_path_in_unicode_is_written_as_it_can_be", "a terminal without Unicode ends in a traceback"),

    ("models/embedder.py", "module.training = False", "pass",
     "models/test_embedder.py::test_frozen_batchnorm_keeps_its_statistics_and_trains_the_rest", "frozen BatchNorm goes on"),
    ("models/weights.py", "weights_only=True", "weights_only=False",
     "models/test_weights.py::test_a_file_that_is_no_weights_is_refused_and_never_executed", "a weights file may execute code"),
    ("models/embedder.py", 'with torch.device("meta"):', 'with torch.device("cpu"):',
     "models/test_folder.py::test_sizes_that_only_the_json_claims_allocate_nothing", "the sizes of model.json are believed"),
    ("models/weights.py", "    check_kinds(own, tensors, source)\n", "",
     "models/test_folder.py::test_weights_that_torch_would_take_without_a_word", "NaN and int8 weights are taken"),

    ("files.py", 'json.loads(text) if path.suffix == ".json" else ', "",
     "training/test_result.py::test_small_numbers_and_odd_names_are_read_as_they_were_written", "JSON is read as YAML"),
    ("files.py", "return text if yaml.safe_load(text) == content else yaml.safe_dump(content, sort_keys=False)", "return text",
     "test_files.py::test_what_is_written_is_what_is_read", "U+0085 becomes a blank"),
    ("files.py", "if written != number or isinstance(written, bool):", "if False:",
     "test_files.py::test_one_policy_for_versions", "files of another version are read"),
    ("files.py", "_bounded(yaml.safe_load(text))", "yaml.safe_load(text)",
     "test_files.py::test_nonsense_is_refused_in_one_line[terabytes-yaml]", "a file of YAML may stand for more than memory"),

    ("processes.py", "    libc.mallopt(MMAP_MAX, 0)  # no block is a mapping of its own, which free returns\n", "",
     "test_processes.py", "large blocks go back to the system at every step"),
    ("method/teachers.py", "            own.copy_(theirs)\n        self._fast.clear()\n", "            own.copy_(theirs)\n",
     "training/test_quicker.py::test_a_copy_follows_its_teacher", "the teacher of the epoch before last goes on teaching"),
    ("method/teachers.py", "        self._fast.clear()\n        super()._load_from", "        super()._load_from",
     "training/test_quicker.py::test_a_copy_follows_its_teacher", "a teacher that was loaded answers as before"),
    ("training/quicker.py", "if answers.cosine >= LEAST_COSINE:", "if True:",
     "training/test_quicker.py::test_bfloat16_is_taken_only_where_rows_stay_what_they_were", "bfloat16 whatever it does to the rows"),
    ("training/build.py", 'device.type in ("cpu", "cuda")', "False",
     "training/test_quicker.py::test_channels_last_is_for_networks_that_learn_images", "networks are trained slowly"),
    ("training/trainer.py", ', "optimizer": self.optimizer, ', ", ",
     "training/test_resume.py", "the optimiser begins anew"),
    ("training/trainer.py", '        self.place = Place(**state["place"])\n', "",
     "training/test_resume.py", "the place is not restored"),
    ("training/checkpoints.py", "if content[-_CHECKSUM:] != _checksum(content[:-_CHECKSUM]):", "if False:",
     "training/test_checkpoints.py", "a checkpoint's checksum is not looked at"),
    ("training/checkpoints.py", 'if state.get("epoch") != epoch:', "if False:",
     "training/test_checkpoints.py", "another epoch's model passes for the best"),
    ("training/loop.py", '{"epoch": place.epoch, "model"', '{"epoch": 0, "model"',
     "training/test_result.py", "best.pt does not say its epoch"),
    ("training/run_folder.py", "        if damaged:\n", "        if False:\n",
     "training/test_result.py", "a record may hold anything"),
    ("training/checkpoints.py", "os.replace(self.last, self.before)", "pass",
     "training/test_checkpoints.py", "the checkpoint before is not kept"),
    ("training/checkpoints.py", "weights_only=True", "weights_only=False",
     "training/test_checkpoints.py", "a checkpoint may execute code"),
    ("training/ranks.py", "        flat /= self.size\n", "",
     "training/test_ranks.py::test_loss_and_gradients_are_those_of_one_process", "gradients are summed over processes"),
    ("training/gradient.py", "        _set_random_state(state, inputs.device)\n", "",
     "training/test_gradient.py", "dropout differs between the passes of a chunk"),
    ("training/trainer.py", "parts.update(base=base.detach(), distillation=distillation.detach())",
     "parts.update(base=distillation.detach(), distillation=base.detach())",
     "training/test_algorithm.py", "the two parts of the loss are told the wrong way round"),
    ("training/loop.py", "        trainer.system.end_epoch(place.reading)", "        pass",
     "training/test_algorithm.py", "the teacher does not hear of the epoch's end"),
    ("training/trainer.py", "if not all(map(torch.isfinite, parts.values())):", "if False:",
     "training/test_refusals.py", "a loss that is not finite is trained on"),
    ("training/run_folder.py", 'if state and line.get("epoch") in range(state["place"]["epoch"])]', "if state]",
     "training/test_resume.py", "a line without its checkpoint is kept twice"),
    ("training/run_folder.py", 'if begun["data"].get(name) != data.get(name)]', "if False]",
     "training/test_resume.py", "a run goes on with other data"),
    ("training/run_folder.py", "if before[name] != value and", "if False and",
     "training/test_resume.py", "a run goes on with other options"),
    ("training/run_folder.py", "        if self.result_file.exists():\n            raise FinishedError",
     "        if False:\n            raise FinishedError",
     "training/test_resume.py", "a finished folder is trained again"),
    ("training/run_folder.py", "            self._lock.acquire()\n", "",
     "training/test_resume.py", "two trainings share a folder"),
    ("training/ranks.py", "                if one != another:\n", "                if False:\n",
     "training/test_ranks.py::test_processes_that_differ_all_end_with_one_line_that_says_in_what", "processes that differ train on"),
    ("training/loop.py", "RunFolder(path, writes=ranks.rank == 0)", "RunFolder(path)",
     "training/test_ranks.py::test_the_first_process_reads_the_checkpoint_and_tells_the_others", "every process reads and writes a run"),
    ("training/ranks.py", "    atexit.register(_disconnect)\n", "",
     "training/test_ranks.py::test_the_processes_are_not_connected_any_more_when_python_ends", "gloo's threads are alive when Python ends"),
    ("training/loop.py", "the step before is complete\n            self._save()\n", "the step before is complete\n",
     "training/test_resume.py::test_a_killed_process_of_the_loader_costs_no_step", "a lost process of the loader costs all steps since"),
    ("loading.py", "        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n", "",
     "test_loading.py::test_a_signal_to_all_processes_is_not_for_them", "a signal to all ends the processes that load"),
    ("loading.py", "signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)", "pass",
     "test_loading.py::test_a_lost_process_is_told_where_its_batch_is_asked_for", "a lost process is told in the middle of a step"),
    ("processes.py", "    if asked > most:\n", "    if False:\n",
     "data/test_collection.py::test_processes_read_image_files_and_nothing_else", "any number of processes is started"),
    ("files.py", "        _remove_leftovers(path.parent)\n", "",
     "test_files.py::test_a_killed_writer_leaves_the_old_file", "what a killed writer left stays for ever"),
    ("training/run_folder.py", "            if relative and Path", "            if False and Path",
     "training/test_resume.py::test_a_relative_path_is_found_from_any_working_directory", "a relative path is lost elsewhere"),
    ("cli/__init__.py", "        with Stop():\n            _run(words)\n", "        _run(words)\n",
     "cli/test_signals.py::test_a_signal_ends_every_command_alike", "SIGTERM is heard by trainings alone"),
    ("stopping.py", "SIGNALS = (signal.SIGTERM, signal.SIGINT)", "SIGNALS = (signal.SIGINT,)",
     "cli/test_signals.py", "SIGTERM is not heard"),
    ("training/loop.py", "if recall > place.best:", "if recall < place.best or place.best < 0:",
     "training/test_result.py", "the worst epoch is kept"),
    ("training/scoring.py", 'if options.score == "validation" else', 'if "test" not in collection.parts else',
     "training/test_result.py", "a search reads test classes"),
    ("training/loop.py", 'group["base_lr"] * factor', 'group["lr"] * factor',
     "training/test_options_act.py::test_learning_rates_rise_from_nothing_over_the_warm_up", "learning rates shrink at every step"),

    ("experiments/statistics.py", "ddof=1", "ddof=0",
     "experiments/test_comparison.py::test_the_t_interval_is_scipys", "intervals over seeds are too short"),
    ("experiments/statistics.py", "(differences[drawn] * queries[drawn]).sum(axis=1) / queries[drawn].sum(axis=1)",
     "differences[drawn].mean(axis=1)",
     "experiments/test_comparison.py::test_the_bootstrap_over_classes_is_that_of_all_resamples", "large classes count as small ones"),
    ("experiments/comparison.py", "values[metric] - others[metric])", "values[metric] - others[metric][::-1])",
     "experiments/test_comparison.py::test_the_table_is_what_the_runs_say", "seeds are paired with others"),
    ("experiments/runs.py", "else options.replace(resume=True)", "else options",
     "experiments/test_comparison.py::test_finished_runs_are_not_repeated_and_interrupted_ones_continue", "a run is not resumed"),
    ("experiments/runs.py", 'if begun["data"] != data_record(', 'if [] == (',
     "experiments/test_comparison.py::test_other_data_than_a_finished_runs_are_noticed", "runs on other data are compared"),
    ("experiments/runs.py", "            elif keep_going:\n", "            elif True:\n",
     "training/test_comparison_faults.py::test_a_run_that_dies_is_named_and_the_same_command_goes_on", "a run that fails ends no other"),
    ("experiments/runs.py", "if code in (Terminated.CODE, -signal.SIGTERM):", "if True:",
     "training/test_comparison_faults.py::test_a_run_that_dies_is_named_and_the_same_command_goes_on", "a killed run is tried for ever"),
    ("experiments/reproduction.py", 'object.__setattr__(self, "data", data_name(self.data))', "pass",
     "experiments/test_reproduction.py::test_data_are_the_same_however_their_path_is_written", "./cub.npz and cub.npz are other data"),
    ("experiments/reproduction.py", 'with FileLock(self.out / f".{name}.lock"):', "if True:",
     "experiments/test_reproduction.py::test_two_processes_lose_nothing_of_times_and_chosen_weights", "times are written without a lock"),
    ("cli/report.py", "with replacing(out) as file:", 'with open(out, "wb") as file:',
     "cli/test_writing.py::test_a_full_disk_is_one_line_and_a_kill_leaves_nothing_half_written[report]", "half a page has its name"),
    ("errors.py", '"can\'t allocate memory"', '"no such words"',
     "cli/test_writing.py::test_too_little_memory_is_one_line", "torch's lack of memory is a defect"),

    ("parts.py", "            if name not in known:\n", "            if False:\n",
     "test_parts.py::test_a_mistake_is_one_line_with_the_remedy", "an unknown setting is ignored"),
    ("parts.py", " if value != known[name].default}", "}",
     "test_parts.py::test_the_canonical_form_names_what_differs_from_the_defaults", "defaults stay in the written form"),
    ("options.py", "        check_limits(TrainOptions, vars(self))\n", "",
     "test_options.py::test_numbers_outside_their_limits_are_refused", "no number has a limit"),
    ("presets.py", 'asked if asked is not None else given.get("omega", usual)', 'given.get("omega", usual)',
     "test_presets.py::test_omega_is_short_for_a_setting_of_the_targets", "omega does not reach the targets"),
    ("presets.py", "    if idle:\n        raise", "    if False:\n        raise",
     "test_presets.py::test_what_does_nothing_or_is_not_known_is_refused", "an option that does nothing is taken"),
    ("data/cars196.py", "omega=0.99", "omega=0.3",
     "test_presets.py::test_the_papers_numbers", "CARS has the ω of CUB"),
    ("seeds.py", '":".join(map(str, place))', '"".join(map(str, place))',
     "test_seeds.py", "(1, 12) and (11, 2) draw the same"),
    ("files.py", """        with _locked(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
""", """        with open(path, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
""",
     "test_files.py", "a file is written in its place"),

    ("report/page.py", 'for character in "<>&', 'for character in "&',
     "report/test_page.py::test_a_class_called_script_is_text", "a name may end the script"),
    ("report/page.py", "autoescape=True", "autoescape=False",
     "report/test_page.py::test_no_field_of_the_content_is_html", "a name may be HTML"),
    ("report/items.py", "found.append((numbers[indices], cosines))", "found.append((indices, cosines))",
     "report/test_items.py::test_query_and_gallery_search_each_other_and_groups_are_ignored", "another item is shown than found"),
    ("report/headline.py", "100 * (baseline + row.difference.low), 100 * (baseline + row.difference.high)",
     "100 * (row.value + row.difference.low), 100 * (row.value + row.difference.high)",
     "report/test_headline.py::test_rows_lie_on_one_axis_and_intervals_start_from_the_baseline", "an interval is drawn around its row"),
    ("report/views.py", "embed(together, items, batch_size=BATCH", "embed(together, items, batch_size=256",
     "report/test_views.py::test_progress_is_told_after_each_batch_of_what_is_left_to_do", "progress that stands still"),
    ("report/measures.py", "record.metrics if own or not about_teaching else []", "record.metrics",
     "report/test_last_epoch.py::test_curves_are_those_of_the_metrics_file", "a curve of zeros where nobody taught"),
    ("report/gathering.py", " if not why_idle(record.options, option)", "",
     "report/test_last_epoch.py::test_a_page_without_a_teacher_shows_neither_its_curves_nor_its_options", "options that do nothing"),
    ("experiments/runs.py", "start=planned - len(due) + 1", "start=1",
     "experiments/test_comparison.py::test_finished_runs_are_not_repeated_and_interrupted_ones_continue", "a comparison counts anew"),

    ("cli/__init__.py", "return MISTAKE", "return DONE",
     "test_cli.py::test_a_mistake_is_one_line_and_exit_code_2", "a mistake exits with 0"),
    ("cli/__init__.py", "return TERMINATED", "return MISTAKE",
     "test_cli.py::test_what_a_command_raises_becomes_an_exit_code", "the end by SIGTERM looks like a mistake"),
    ("cli/__init__.py", "import importlib\n", "import importlib\nimport torch\n",
     "test_cli.py::test_help_is_instant", "help imports torch"),
    ("cli/parser.py", '{**_read_config(Path(flags["config"]).expanduser()), **given}',
     '{**given, **_read_config(Path(flags["config"]).expanduser())}',
     "cli/test_config.py::test_default_preset_config_flag", "a file counts more than a flag"),
    ("models/embedder.py", "_unit(features) if self.architecture.unit_features else features", "features",
     "training/test_frozen.py::test_one_model_takes_images_and_gives_the_rows_that_were_scored",
     "a joined model takes features for unit rows"),
    ("models/embedder.py", "copy.deepcopy(head.head), head.dim, head.trained_on", "copy.deepcopy(head.head), head.dim, None",
     "cli/test_join.py", "a joined model forgets what its head has seen"),
    ("models/places.py", "    if not re.search(", "    if False and not re.search(",
     "cli/test_quick.py", "only timm, once imported, tells a wrong backbone"),
    ("cli/join.py", "if name in known)", "if name not in known)",
     "cli/test_join.py::test_told_of_its_images_it_refuses_to_be_scored_on_them",
     "a joined model remembers the images of the other classes"),
    ("training/features.py", "rows[[place[digest] for digest in own]]", "rows[: len(own)]",
     "training/test_frozen.py", "features are given to other images"),
    ("training/features.py", '"backbone": backbone_digest(model), ', "",
     "training/test_frozen.py::test_features_are_computed_once_for_all_seeds_and_splits",
     "features of another backbone are taken from the cache"),
    ("cache.py", "        arrays = _read(path)\n", "        arrays = None\n",
     "training/test_frozen.py::test_features_are_computed_once_for_all_seeds_and_splits", "features are computed each time"),
    ("training/build.py", "now if before is None else now.after(before)", "now",
     "training/test_beginning_and_end.py", "a model forgets what the model before it had seen"),
    ("training/build.py", "[*remarks, *check_unseen(str(options.init or options.pretrained), begun_as, chosen)]", "remarks",
     "training/test_beginning_and_end.py::test_models_that_cannot_be_begun_with", "a model to begin with may have seen what is scored"),
    ("training/build.py", "made = {} if options.init is None else {", "made = {} if True else {",
     "training/test_beginning_and_end.py", "a run calls the model that it began with by the usual settings"),
    ("training/build.py", "fit = min(USUAL_BATCH // k, classes, ", "fit = min(USUAL_BATCH // k, ",
     "training/test_beginning_and_end.py::test_the_usual_batch_fits_the_classes_that_there_are",
     "the usual batch needs more classes than there are"),
    ("models/inference.py", "return bool(far <= NEAR * max(1.0, float(truth.abs().max())))", "return True",
     "models/test_inference.py::test_what_cannot_be_folded_stays_as_it_is", "what was folded is not compared with the model"),
    ("models/inference.py", "if uses[pair[0]] == uses[pair[1]] == 1]", "]",
     "models/test_inference.py::test_what_cannot_be_folded_stays_as_it_is", "a convolution before two norms is folded into both"),
    ("data/store.py", "        if changed := [path for path, box in wanted if", "        if changed := [path for path, box in () if",
     "data/test_decoded.py", "a cache of images that changed is used"),
    ("data/store.py", "        if _checksum(index) != self.checksum:", "        if False:",
     "data/test_decoded.py", "a cache that is cut off is read"),
    ("data/store.py", "if file.read(len(MARK)) != MARK:\n", "if file.read(len(MARK)) != MARK and False:\n",
     "data/test_decoded.py::test_what_stands_in_its_place_is_left_alone", "a foreign file is built over"),
    ("data/store.py", "                held.enter_context(lock.acquire(timeout=0))\n", "                pass\n",
     "data/test_decoded.py::test_of_two_processes_one_builds_and_the_other_waits", "two processes build the same cache"),
    ("data/decoded.py", "    if isinstance(items, Reduced) and not items.shows_as_files(preprocessing):\n", "    if False:\n",
     "data/test_decoded.py::test_a_test_sees_the_same_with_a_cache_of_any_side", "a test sees images that were reduced to another side"),
    ("data/transforms.py", "        if not isinstance(image, Shrunk):\n", "        if True:\n",
     "data/test_decoded.py::test_a_random_crop_shows_the_same_place_of_a_smaller_image", "a crop shows another place of a cached image"),
    ("training/run_folder.py", ', "cache_side": begun.cache_side or 0}', "}",
     "training/test_from_cache.py::test_a_run_goes_on_with_the_side_that_it_began_with", "a run goes on with images of another side"),
    ("training/loader.py", "        part = reduced(part, ", "        part = part or reduced(part, ",
     "training/test_from_cache.py::test_reduced_images_give_the_same_run_with_a_cache_and_without", "without a cache nothing is reduced"),
    ("cli/embed.py", "size=self.size, pooling=self.pooling, resize=self.resize", "pooling=self.pooling",
     "cli/test_embed.py::test_a_backbone_sees_images_at_the_size_that_is_asked_for", "--size and --resize are not heard"),
    ("training/loop.py", "name + at * (name == FROZEN)", "name",
     "training/test_frozen.py::test_the_untrained_reference_says_at_which_size_the_images_were_seen",
     "the untrained reference does not say its size"),
    ("models/weights.py", "mean=(127.0,) * 3, std=(128.0,) * 3, ", "",
     "models/test_weights.py::test_offline_weights_compute_what_their_own_network_computes", "offline weights see the usual mean and std"),
    ("data/cars196.py", "statistics.median(numbers[name])", "min(numbers[name])",
     "data/test_cars196.py", "the first image of a class decides on which side it is"),
    ("data/cars196.py", "        if len({*told.values()}) > 1:\n", "        if False:\n",
     "data/test_cars196.py::test_numbers_that_say_otherwise_than_the_names_are_refused", "numbers that contradict the names are ignored"),
    ("data/archives.py", 'part, "ab" if goes_on else "wb"', 'part, "ab"',
     "cli/test_get.py::test_a_server_without_ranges_begins_anew", "what comes anew is put behind what was there"),
    ("data/archives.py", '({"Range": f"bytes={have}-"} if have else {})', "{}",
     "cli/test_get.py::test_a_connection_that_breaks_is_gone_on_with", "every broken download begins anew"),
    ("data/archives.py", "(digest := _digest(part, progress)) != archive.sha256", "not (digest := _digest(part, progress))",
     "cli/test_get.py::test_other_bytes_are_refused_and_removed", "any bytes are unpacked"),
    ("data/unpacking.py", 'member.name.startswith("/") or ".." in member.name.split("/")', "False",
     "data/test_unpacking.py::test_a_hostile_archive_leaves_nothing_anywhere", "a path of an archive leaves the folder"),
    ("data/unpacking.py", "    if not (member.is_file or member.is_folder):\n", "    if False:\n",
     "data/test_unpacking.py::test_a_hostile_archive_leaves_nothing_anywhere", "links of an archive are taken"),
    ("data/unpacking.py", "temporary / path, left)", "folder.parent / path, left)",
     "cli/test_get.py::test_a_kill_while_it_is_unpacked_leaves_no_folder", "the folder grows file by file"),
    ("training/build.py", "or (options.test_fraction == 0 and not", "or (False and not",
     "training/test_beginning_and_end.py::test_all_classes_are_trained_on_and_nothing_is_scored", "all classes cannot be trained on"),
    ("search/suspects.py", "_unit(sums[own] - rows[part])", "means[own]",
     "search/test_suspects.py::test_scores_are_those_of_plain_loops", "an item is judged by a mean that it is part of"),
    ("search/suspects.py", "min(1.0, 2 * float(", "min(1.0, float(",
     "search/test_suspects.py::test_labels_made_wrong_are_found_and_counted", "half of the wrong labels are counted"),
    ("search/calibration.py", "is_own = is_same & (groups[part, None] != groups)", "is_own = is_same",
     "search/test_calibration.py::test_rates_and_thresholds_are_those_of_brute_force", "a photo is its own match"),
    ("search/calibration.py", "np.where(labels[part, None] == known, -np.inf, ", "np.where(False, -np.inf, ",
     "search/test_calibration.py::test_labels_of_the_collection_are_compared_as_text", "a copy in the index is a false match"),
    ("search/calibration.py", "np.nextafter(np.float32(np.partition(best.other, place)[place]), np.float32(2))",
     "np.partition(best.other, place)[place]",
     "search/test_calibration.py::test_rates_and_thresholds_are_those_of_brute_force", "one false match too many"),
    ("report/templates/suspects.html", "{{ pair.cards[0].label }}", "{{ pair.cards[0].label|safe }}",
     "cli/test_suspects.py::test_the_page_shows_the_pictures_and_runs_nothing", "a class name is HTML"),
]
# fmt: on


def main() -> int:
    """0 if every break is caught."""
    start = time.monotonic()
    for file, old, _, _, what in BREAKS:
        if (number := (ROOT / "src" / "obdsd" / file).read_text().count(old)) != 1:
            print(f"{what}: src/obdsd/{file} holds {old!r} {number} times, not once; the code has moved on, write the break anew")
            return 1
    code, text = run_tests(ROOT / "src", *dict.fromkeys(tests for *_, tests, _ in BREAKS))
    if code:
        print(text, "these tests must pass before anything is broken", sep="\n")
        return 1
    print(f"unbroken: all tests pass, {time.monotonic() - start:.0f} s", flush=True)
    with ThreadPoolExecutor(2) as pool:
        caught = list(pool.map(try_out, BREAKS))
    print(f"{sum(caught)} of {len(caught)} breaks caught, {time.monotonic() - start:.0f} s")
    return 0 if all(caught) else 1


def try_out(broken: tuple[str, str, str, str, str]) -> bool:
    """Whether one of its tests fails on a copy of the code with this break. One that cannot even be imported proves nothing."""
    file, old, new, tests, what = broken
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
        path = source / "obdsd" / file
        path.write_text(path.read_text().replace(old, new))
        start = time.monotonic()
        code, text = run_tests(source, tests)
    caught = code == 1
    print(f"{'caught' if caught else 'NOT CAUGHT'}: {what} ({file}; {tests}; {time.monotonic() - start:.0f} s)", flush=True)
    if not caught and code:
        print(text)
    return caught


def run_tests(source: Path, *tests: str) -> tuple[int | None, str]:
    """Run these tests on this source, also in the processes that they start: pytest's exit code and the end of what it prints."""
    with tempfile.NamedTemporaryFile("w+") as printed:
        process = multiprocessing.get_context("fork").Process(target=_run_tests, args=(source, tests, printed.fileno()))
        process.start()
        process.join()
        printed.seek(0)
        return process.exitcode, "\n".join(printed.read().splitlines()[-15:])


def _run_tests(source: Path, tests: Sequence[str], printed: int) -> None:
    """In a process that has what obdsd needs, but not obdsd: that would take most of the time each time."""
    for number in (1, 2):
        os.dup2(printed, number)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(source), str(ROOT)])
    command = ["-x", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath=. {source}", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*command, *(f"tests/{each}" for each in tests)]))


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""  # only breaks whose file or words match
    BREAKS = [each for each in BREAKS if re.search(wanted, f"{each[0]} {each[4]}")]
    for module in NEEDED:
        importlib.import_module(module)
    sys.exit(main())
