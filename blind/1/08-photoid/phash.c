/* Perceptual hash of a picture: box blur, then averages of an 8 x 8 grid. */
#include <erl_nif.h>
#include <stdint.h>
#include <stdlib.h>

static ERL_NIF_TERM hash(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifBinary img;
    int w, h, r;
    if (!enif_inspect_binary(env, argv[0], &img) || !enif_get_int(env, argv[1], &w) ||
        !enif_get_int(env, argv[2], &h) || !enif_get_int(env, argv[3], &r) || img.size < (size_t)w * h)
        return enif_make_badarg(env);
    uint8_t *out = enif_alloc((size_t)w * h);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            unsigned sum = 0, n = 0;
            for (int dy = -r; dy <= r; dy++) {
                int yy = y + dy;
                if (yy < 0 || yy >= h) continue;
                for (int dx = -r; dx <= r; dx++) {
                    int xx = x + dx;
                    if (xx < 0 || xx >= w) continue;
                    sum += img.data[yy * w + xx];
                    n++;
                }
            }
            out[y * w + x] = sum / n;
        }
    uint64_t cell[64] = {0}, total = 0, bits = 0;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            cell[(y * 8 / h) * 8 + x * 8 / w] += out[y * w + x];
            total += out[y * w + x];
        }
    enif_free(out);
    for (int i = 0; i < 64; i++)
        if (cell[i] * 64 > total) bits |= (uint64_t)1 << i;
    return enif_make_uint64(env, bits);
}

static ErlNifFunc funcs[] = {{"hash_nif", 4, hash, 0}};
ERL_NIF_INIT(phash, funcs, NULL, NULL, NULL, NULL)
