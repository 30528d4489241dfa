/* progress.c - see progress.h. The bar is the last line of the terminal; every other line first clears it, and redraws it afterwards. */
#include "report/progress.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct progress {
	progress_write_fn write;
	void *ctx;
	struct progress_look look;
	pthread_mutex_t lock;
	struct progress_step last;
	bool have;      /* last is filled */
	char bar[1024]; /* as it stands on the screen; empty: none */
};

int progress_new(progress_write_fn write, void *ctx, struct progress_look look, struct progress **p_p, struct err *e)
{
	struct progress *p = mem_zalloc(sizeof *p);
	if (!p)
		return err_nomem(e, sizeof *p, "the progress display");
	p->write = write;
	p->ctx = ctx;
	p->look = look;
	pthread_mutex_init(&p->lock, NULL);
	*p_p = p;
	return 0;
}

void progress_duration(double seconds, char *s, size_t cap)
{
	if (!(seconds >= 0) || seconds > 1e9) {
		snprintf(s, cap, "?");
		return;
	}
	long long t = (long long)(seconds + 0.5);
	if (t < 3600)
		snprintf(s, cap, "%lld:%02lld", t / 60, t % 60);
	else if (t < 2 * 86400)
		snprintf(s, cap, "%lld:%02lld:%02lld", t / 3600, t / 60 % 60, t % 60);
	else
		snprintf(s, cap, "%lld days %lld h", t / 86400, t / 3600 % 24);
}

struct text {
	char s[1024];
	size_t n;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->n += (size_t)n < sizeof t->s - t->n ? (size_t)n : sizeof t->s - t->n - 1;
}

static void put(struct progress *p, const struct text *t) { p->write(p->ctx, t->s, t->n); }

/* 812, 9.6, 12.3k: three digits are enough for a rate. */
static void rate(struct text *t, double v)
{
	if (!isfinite(v))
		add(t, "%6s", "-");
	else if (v < 9.95)
		add(t, "%6.2f", v);
	else if (v < 99.5)
		add(t, "%6.1f", v);
	else if (v < 99999.5)
		add(t, "%6.0f", v);
	else
		add(t, "%5.0fk", v / 1000);
}

static void clear_bar(struct progress *p)
{
	if (!p->bar[0])
		return;
	p->write(p->ctx, "\r\033[K", 4);
	p->bar[0] = 0;
}

static void show_bar(struct progress *p, const char *bar)
{
	struct text t = { .n = 0 };
	snprintf(p->bar, sizeof p->bar, "%s", bar);
	add(&t, "\r\033[K%s", p->bar);
	put(p, &t);
}

/* "████████▌         " in `width` columns, an eighth of a column fine. */
static void blocks(struct text *t, double share, int width)
{
	static const char *const part[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	int eighths = (int)(fmin(fmax(share, 0), 1) * width * 8 + 0.5), full = eighths / 8, rest = eighths % 8;
	for (int i = 0; i < full; i++)
		add(t, "█");
	add(t, "%s%*s", part[rest], width - full - (rest != 0), "");
}

static void draw(struct progress *p, const char *what, double share)
{
	struct text bar = { .n = 0 };
	char left[48], eta[48] = "";
	const struct progress_step *s = &p->last;
	if (p->have && isfinite(s->eta)) {
		char d[32];
		progress_duration(s->eta, d, sizeof d);
		snprintf(eta, sizeof eta, "%s left", d);
	}
	snprintf(left, sizeof left, "%.46s", what);
	int room = p->look.columns - 1 - (int)strlen(left) - (int)strlen(eta) - 12;
	if (room < 8) {
		add(&bar, "%.*s", p->look.columns - 1, left);
	} else {
		room = room > 40 ? 40 : room;
		add(&bar, "%s %s", left, p->look.colour ? "\033[36m" : "");
		blocks(&bar, share, room);
		add(&bar, "%s %3.0f%%  %s", p->look.colour ? "\033[0m" : "", 100 * fmin(fmax(share, 0), 1), eta);
	}
	show_bar(p, bar.s);
}

static void step_line(struct progress *p, const struct progress_step *s)
{
	struct text t = { .n = 0 };
	const char *dim = p->look.colour ? "\033[2m" : "", *bold = p->look.colour ? "\033[1m" : "",
		   *off = p->look.colour ? "\033[0m" : "";
	int digits = 1;
	for (int64_t n = s->steps; n >= 10; n /= 10)
		digits++;
	if (s->steps)
		add(&t, "%sstep%s %*lld/%lld", dim, off, digits, (long long)s->step, (long long)s->steps);
	else
		add(&t, "%sstep%s %lld", dim, off, (long long)s->step);
	if (s->skipped && isfinite(s->loss) && s->loss_scale > 1)
		add(&t, "  %sskipped: the gradient leaves float16's range at loss scale %g, which is halved%s",
		    p->look.colour ? "\033[33m" : "", s->loss_scale, off);
	else if (s->skipped)
		add(&t, "  %sskipped: loss or gradient is not finite%s", p->look.colour ? "\033[33m" : "", off);
	else
		add(&t, "  %sloss%s %s%7.4f%s", dim, off, bold, s->loss, off);
	add(&t, "  %slr%s %.2e", dim, off, s->learning_rate);
	if (isfinite(s->grad_norm))
		add(&t, "  %snorm%s %7.3f", dim, off, s->grad_norm);
	add(&t, "  ");
	rate(&t, s->tokens_per_second);
	add(&t, "%s tokens/s%s", dim, off);
	if (isfinite(s->eta)) {
		char d[32];
		progress_duration(s->eta, d, sizeof d);
		add(&t, "  %sETA%s %s", dim, off, d);
	}
	if (isfinite(s->val_loss))
		add(&t, "  %svalidation loss%s %s%.4f%s", dim, off, bold, s->val_loss, off);
	add(&t, "\n");
	clear_bar(p);
	put(p, &t);
}

void progress_step(struct progress *p, const struct progress_step *s, bool line)
{
	pthread_mutex_lock(&p->lock);
	p->last = *s;
	p->have = true;
	if (line)
		step_line(p, s);
	if (p->look.columns && s->steps) {
		char what[48];
		snprintf(what, sizeof what, "%lld/%lld", (long long)s->step, (long long)s->steps);
		if (s->step < s->steps)
			draw(p, what, (double)s->step / (double)s->steps);
		else
			clear_bar(p);
	}
	pthread_mutex_unlock(&p->lock);
}

void progress_line(struct progress *p, const char *text)
{
	pthread_mutex_lock(&p->lock);
	char keep[sizeof p->bar];
	memcpy(keep, p->bar, sizeof keep);
	clear_bar(p);
	p->write(p->ctx, text, strlen(text));
	p->write(p->ctx, "\n", 1);
	if (keep[0])
		show_bar(p, keep);
	pthread_mutex_unlock(&p->lock);
}

void progress_part(struct progress *p, const char *what, int64_t done, int64_t all)
{
	pthread_mutex_lock(&p->lock);
	if (p->look.columns && all > 0)
		draw(p, what, (double)done / (double)all);
	pthread_mutex_unlock(&p->lock);
}

void progress_free(struct progress *p)
{
	if (!p)
		return;
	clear_bar(p);
	pthread_mutex_destroy(&p->lock);
	mem_free(p);
}
