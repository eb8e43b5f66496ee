/* Scales pictures down for the preview. */
#include <erl_nif.h>
#include <stdlib.h>
#include <string.h>

static ERL_NIF_TERM scale(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifBinary in;
    int progressive;
    ERL_NIF_TERM out;
    unsigned char *rows, *coef = NULL, *o;
    size_t i, n;
    if (!enif_inspect_binary(env, argv[0], &in) || !enif_get_int(env, argv[1], &progressive))
        return enif_make_badarg(env);
    n = in.size / 4;
    rows = malloc(in.size);
    if (progressive) {              /* the coefficients of all passes must be held */
        coef = malloc(in.size * 2);
        for (i = 0; i < in.size * 2; i++) coef[i] = in.data[i / 2] + i;
        for (i = 0; i < in.size; i++) rows[i] = (coef[2 * i] + coef[2 * i + 1]) / 2;
    } else {
        memcpy(rows, in.data, in.size);
    }
    o = enif_make_new_binary(env, n, &out);
    for (i = 0; i < n; i++) o[i] = (rows[4 * i] + rows[4 * i + 1] + rows[4 * i + 2] + rows[4 * i + 3]) / 4;
    free(rows);
    return out;
}
static ErlNifFunc funcs[] = {{"scale", 2, scale, 0}};
ERL_NIF_INIT(postcards_scale, funcs, NULL, NULL, NULL, NULL)
