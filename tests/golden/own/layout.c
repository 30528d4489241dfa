/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - where the members of the public structs lie, one a line; layout.txt is what it printed.
 * Members are added at the end of a struct, and their lines here. */
#include <heteroshard.h>
#include <stdio.h>

#define AT(s, m) printf("%s.%s %d\n", #s, #m, (int)offsetof(s, m))

int main(void)
{
	AT(hs_error, code), AT(hs_error, text);
	AT(hs_param, name), AT(hs_param, ndim), AT(hs_param, dim), AT(hs_param, count);
	AT(hs_pass, set), AT(hs_pass, rows), AT(hs_pass, in), AT(hs_pass, out), AT(hs_pass, x);
	AT(hs_pass, y), AT(hs_pass, param), AT(hs_pass, dy), AT(hs_pass, dx), AT(hs_pass, dparam);
	AT(hs_pass, ndim), AT(hs_pass, dim);
	AT(hs_setting, name), AT(hs_setting, least), AT(hs_setting, most), AT(hs_setting, value);
	AT(hs_kind_param, name), AT(hs_kind_param, rows), AT(hs_kind_param, columns);
	AT(hs_kind_param, first);
	AT(hs_kind, size), AT(hs_kind, name), AT(hs_kind, help), AT(hs_kind, version);
	AT(hs_kind, setting), AT(hs_kind, shape), AT(hs_kind, params), AT(hs_kind, forward);
	AT(hs_kind, backward), AT(hs_kind, text), AT(hs_kind, lanes);
	AT(hs_update, name), AT(hs_update, ndim), AT(hs_update, dim), AT(hs_update, first);
	AT(hs_update, count), AT(hs_update, step), AT(hs_update, learning_rate);
	AT(hs_update, scale), AT(hs_update, weight_decay), AT(hs_update, beta1);
	AT(hs_update, beta2), AT(hs_update, epsilon), AT(hs_update, momentum);
	AT(hs_update, value), AT(hs_update, grad), AT(hs_update, state);
	AT(hs_optimizer, size), AT(hs_optimizer, name), AT(hs_optimizer, help);
	AT(hs_optimizer, version), AT(hs_optimizer, cut), AT(hs_optimizer, states);
	AT(hs_optimizer, state), AT(hs_optimizer, update);
	AT(hs_data, size), AT(hs_data, count), AT(hs_data, held), AT(hs_data, length);
	AT(hs_data, version), AT(hs_data, get), AT(hs_data, ctx), AT(hs_data, block);
	AT(hs_data, mixed);
	AT(hs_files, size), AT(hs_files, x), AT(hs_files, y), AT(hs_files, x_columns);
	AT(hs_files, y_columns), AT(hs_files, length), AT(hs_files, held), AT(hs_files, scale);
	AT(hs_files, shift), AT(hs_files, block), AT(hs_files, mixed);
	AT(hs_step, step), AT(hs_step, total), AT(hs_step, epoch), AT(hs_step, loss);
	AT(hs_step, accuracy), AT(hs_step, learning_rate), AT(hs_step, grad_norm);
	AT(hs_step, seconds), AT(hs_step, rows), AT(hs_step, skipped);
	AT(hs_evaluation, step), AT(hs_evaluation, loss), AT(hs_evaluation, accuracy);
	AT(hs_evaluation, rows);
	AT(hs_change, event), AT(hs_change, text), AT(hs_change, step);
	AT(hs_callbacks, ctx), AT(hs_callbacks, step), AT(hs_callbacks, evaluated);
	AT(hs_callbacks, saved), AT(hs_callbacks, changed);
	AT(hs_options, size), AT(hs_options, config), AT(hs_options, set), AT(hs_options, sets);
	AT(hs_options, device), AT(hs_options, devices), AT(hs_options, worker);
	AT(hs_options, on), AT(hs_options, allow_changes);
	AT(hs_result, step), AT(hs_result, total), AT(hs_result, stopped);
	AT(hs_result, first_loss), AT(hs_result, last_loss), AT(hs_result, held_before);
	AT(hs_result, held_after), AT(hs_result, seconds), AT(hs_result, first_step);
	AT(hs_result, steps), AT(hs_result, loss), AT(hs_result, learning_rate);
	AT(hs_result, grad_norm);
	AT(hs_generation, size), AT(hs_generation, model), AT(hs_generation, adapter);
	AT(hs_generation, device), AT(hs_generation, chat_template), AT(hs_generation, system);
	AT(hs_generation, prompt), AT(hs_generation, raw), AT(hs_generation, most);
	AT(hs_generation, temperature), AT(hs_generation, top_p), AT(hs_generation, top_k);
	AT(hs_generation, seed), AT(hs_generation, text), AT(hs_generation, ctx);
	AT(hs_io, size), AT(hs_io, input), AT(hs_io, input_size), AT(hs_io, out), AT(hs_io, err);
	AT(hs_io, ctx), AT(hs_io, stop), AT(hs_io, program);
	return 0;
}
