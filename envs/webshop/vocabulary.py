"""The words of the generated catalogue: product types, attribute phrases, option values, sentences.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: [vocabulary] -> generate -> catalogue

Tables and nothing else. Every brand, title and sentence made of them is ours; only the kinds of words are the shop's.
"""

from dataclasses import dataclass

# "@ category | department | section", then types: what goals call them = what sellers call them, two words each.
_TYPES = """
@ beauty | Hair Care | Shampoo
shampoos = shampoo, cleansing wash; conditioners = conditioner, detangler; hair masks = hair mask, repair treatment;
hair oils = hair oil, scalp oil; hair growth serums = growth serum, follicle drops
@ beauty | Hair Care | Styling
hair sprays = hairspray, finishing mist; styling gels = styling gel, edge control; hair waxes = hair wax, pomade; curl
creams = curl cream, curl custard; hair dyes = hair dye, color kit; hair clips = hair clip, barrette; wigs = lace wig,
hairpiece; hair extensions = hair extension, ponytail piece
@ beauty | Hair Care | Tools
hair dryers = hair dryer, blow dryer; curling irons = curling wand, curler; hair brushes = paddle brush, detangling
comb; hair clippers = hair trimmer, barber clipper
@ beauty | Skin Care | Face
face moisturizers = face cream, day lotion; face serums = face serum, ampoule; face masks = sheet mask, clay mask;
face washes = face wash, foaming cleanser; eye creams = eye cream, eye balm; toners = toner, face essence; lip balms =
lip balm, lip butter; sunscreens = sunscreen, sun lotion
@ beauty | Skin Care | Body
body lotions = body lotion, body milk; body scrubs = sugar scrub, body polish; hand creams = hand cream, hand salve;
bath bombs = bath bomb, bath fizzer; bar soaps = bar soap, soap bar; loofahs & sponges = loofah sponge, bath pouf
@ beauty | Makeup | Face Makeup
foundations = foundation, skin tint; blushes = blush, cheek stain; makeup brushes = brush set, blending brush; makeup
removers = makeup wipe, micellar cloth; makeup mirrors = vanity mirror, lighted mirror; cosmetic bags = cosmetic bag,
toiletry pouch
@ beauty | Makeup | Eyes & Lips
mascaras = mascara, lash primer; eyeshadow palettes = eyeshadow palette, shadow kit; eyeliners = eyeliner, liner pen;
false eyelashes = false lashes, lash strip; lipsticks = lipstick, lip color; lip glosses = lip gloss, lip oil
@ beauty | Nails & Oral Care | Care
nail polishes = nail polish, gel lacquer; toothbrushes = toothbrush, sonic brush; toothpastes = toothpaste, tooth gel;
mouthwashes = mouth rinse, oral rinse; dental floss = floss pick, dental floss; whitening kits = whitening strip,
whitening pen
@ beauty | Fragrance & Shaving | Care
women's fragrances = eau parfum, perfume spray; men's fragrances = cologne, eau toilette; deodorants = deodorant
stick, underarm spray; razors = safety razor, shaver; shaving creams = shave foam, shaving cream; beard oils = beard
oil, beard balm; refillable containers = travel bottle, pump dispenser; tweezers = tweezer, brow plucker
@ electronics | Computers | Peripherals
computer mice = optical mouse, trackball; keyboards = keyboard, keypad; monitors = monitor, display panel; webcams =
webcam, streaming camera; usb hubs = usb hub, docking station; laptop stands = laptop riser, notebook stand; mouse
pads = mouse mat, desk pad; laptop bags = laptop sleeve, notebook case; printers = inkjet printer, label printer;
scanners = document scanner, film scanner
@ electronics | Computers | Parts
desktop computers = desktop tower, mini computer; laptops = laptop, notebook computer; tablets = tablet, drawing
slate; external drives = external drive, flash drive; memory cards = memory card, micro card; computer cases = tower
case, chassis; graphics cards = graphics card, video adapter; routers = router, mesh node; network cables = ethernet
cable, patch cord; power supplies = power supply, laptop charger
@ electronics | Audio | Listening
headphones = headphones, headset; earbuds = earbuds, earphones; bluetooth speakers = bluetooth speaker, party speaker;
soundbars = soundbar, tv speaker; subwoofers = subwoofer, bass box; turntables = turntable, record player; microphones
= microphone, lapel mic; receivers & amplifiers = stereo receiver, amplifier; radios = pocket radio, shortwave radio;
speaker stands = speaker stand, speaker mount; mp3 players = mp3 player, music player
@ electronics | Video | Watching
televisions = smart tv, television; projectors = projector, cinema beamer; projection screens = projection screen,
movie screen; tv mounts = tv mount, wall bracket; streaming players = streaming stick, media box; dvd players = dvd
player, disc player; hdmi cables = hdmi cable, display cord; tv antennas = tv antenna, signal booster; remote controls
= remote control, tv clicker; vr headsets = vr headset, cardboard goggles
@ electronics | Camera | Photo
digital cameras = digital camera, compact camera; camera lenses = zoom lens, macro lens; tripods = tripod, monopod;
camera bags = camera bag, lens pouch; photo backdrops = photo backdrop, studio background; ring lights = ring light,
softbox; binoculars & scopes = binoculars, spotting scope; security cameras = security camera, dome camera; dash cams
= dash cam, car recorder; camera batteries = camera battery, battery grip
@ electronics | Phones | Accessories
phone cases = phone case, phone cover; screen protectors = screen protector, glass film; phone chargers = wall
charger, charging cable; power banks = power bank, battery pack; phone mounts = phone mount, car cradle; smartwatch
bands = watch band, wrist strap; smartwatches = smartwatch, fitness tracker
@ garden | Furniture | Living Room
sofas & couches = loveseat, sectional sofa; coffee tables = coffee table, cocktail table; console tables = console
table, entry table; end tables = end table, side table; tv stands = tv stand, media console; bookcases = bookcase,
bookshelf; accent chairs = accent chair, armchair; ottomans = ottoman, footstool; recliners = recliner, lounge chair;
storage benches = storage bench, entry bench
@ garden | Furniture | Bedroom
beds = platform bed, bed frame; nightstands = nightstand, bedside table; dressers = dresser, chest drawers; mattresses
= mattress, foam mattress; headboards = headboard, bed panel; vanities = vanity desk, makeup table; armoires =
armoire, wardrobe; bunk beds = bunk bed, loft bed
@ garden | Furniture | Dining & Office
dining tables = dining table, kitchen table; dining chairs = dining chair, parsons chair; bar stools = bar stool,
counter stool; office desks = writing desk, computer desk; office chairs = office chair, task chair; file cabinets =
file cabinet, drawer unit; buffets & sideboards = sideboard, buffet cabinet; bar carts = bar cart, wine trolley
@ garden | Home Décor | Textiles
throw pillows = throw pillow, cushion cover; throw blankets = throw blanket, fleece throw; area rugs = area rug,
runner rug; window curtains = window curtain, blackout drapes; bath mats = bath mat, shower rug; table runners = table
runner, tablecloth; comforters = comforter, quilt set; bed sheets = sheet set, fitted sheet; slipcovers = slipcover,
sofa protector; shower curtains = shower curtain, bath curtain
@ garden | Home Décor | Accents
wall art = canvas print, wall poster; wall mirrors = wall mirror, arch mirror; picture frames = picture frame, photo
frame; candles = scented candle, soy candle; candle holders = candle holder, candlestick; artificial plants = faux
plant, silk flowers; vases = vase, flower jar; wall clocks = wall clock, desk clock; wall shelves = floating shelf,
wall rack
@ garden | Lighting | Lamps
table lamps = table lamp, bedside lamp; floor lamps = floor lamp, standing lamp; pendant lights = pendant light,
hanging lamp; wall sconces = wall sconce, wall lamp; chandeliers = chandelier, crystal fixture; vanity lights = vanity
light, bathroom fixture; string lights = string light, fairy lights; ceiling fans = ceiling fan, fan light
@ fashion | Women | Clothing
women's dresses = maxi dress, shift dress; women's blouses = blouse, tunic top; women's t-shirts = graphic tee, crew
tee; women's sweaters = pullover sweater, knit cardigan; women's jeans = skinny jeans, denim pants; women's leggings =
leggings, yoga tights; women's skirts = pencil skirt, pleated skirt; women's jackets = windbreaker, denim jacket;
women's coats = trench coat, puffer coat; women's swimsuits = swimsuit, bikini set; women's pajamas = pajama set,
nightgown; women's bras = sports bra, bralette; women's jumpsuits = jumpsuit, romper; women's hoodies = hoodie, zip
sweatshirt
@ fashion | Men | Clothing
men's shirts = button shirt, flannel shirt; men's t-shirts = crew shirt, pocket tee; men's polos = polo shirt, golf
polo; men's jeans = straight jeans, work jeans; men's pants = chino pants, cargo trousers; men's shorts = gym shorts,
board shorts; men's jackets = bomber jacket, field jacket; men's sweaters = wool sweater, quarter zip; men's hoodies =
fleece hoodie, pullover hood; men's suits = suit jacket, tuxedo blazer; men's underwear = boxer briefs, trunks; men's
pajamas = lounge pants, sleep set; men's swimwear = swim trunks, surf shorts; men's vests = utility vest, waistcoat
@ fashion | Women | Shoes
women's boots = ankle booties, knee boots; women's sandals = slide sandals, wedge sandals; women's sneakers = walking
sneakers, tennis shoes; women's flats = ballet flats, pointed flats; women's pumps = stiletto pumps, block heels;
women's slippers = house slippers, fuzzy slippers
@ fashion | Men | Shoes
men's boots = work boots, chukka boots; men's sneakers = running sneakers, trainers; men's loafers = penny loafers,
moccasins; men's sandals = sport sandals, flip flops; men's oxfords = oxford shoes, derby shoes; men's slippers = clog
slippers, house scuffs
@ fashion | Women | Accessories
women's scarves = silk scarf, wrap shawl; women's hats = bucket hat, knit beanie; women's handbags = crossbody bag,
tote bag; women's socks = ankle socks, crew hosiery; women's belts = waist belt, chain belt
@ grocery | Snacks | Sweet & Salty
snack bars = granola bar, protein bar; chips & crisps = potato chips, veggie crisps; popcorn = popcorn, kettle corn;
nuts & seeds = roasted almonds, trail mix; cookies = shortbread cookies, oat cookies; crackers = crackers, flatbread
crisps; candy = gummy candy, fruit chews; chocolate = chocolate bar, truffles; jerky = beef jerky, turkey bites; dried
fruits = dried mango, fruit leather; pretzels = pretzel sticks, pretzel twists
@ grocery | Beverages | Drinks
coffee = ground coffee, espresso beans; tea = green tea, herbal tea; juices = fruit juice, lemonade; sports drinks =
electrolyte powder, energy drink; plant milks = almond milk, oat drink; hot cocoa = cocoa mix, drinking chocolate;
sparkling waters = sparkling water, seltzer
@ grocery | Pantry | Staples
pasta = penne pasta, rice noodles; sauces = pasta sauce, curry sauce; cooking oils = olive oil, avocado oil; spices &
seasonings = spice blend, steak rub; soups = noodle soup, bone broth; cereals = breakfast cereal, muesli; baking mixes
= pancake mix, cake mix; nut butters = peanut butter, almond spread; honey & syrups = raw honey, maple syrup; rice &
grains = basmati rice, quinoa; canned fish = canned tuna, sardines; flours = wheat flour, coconut flour; vinegars =
apple vinegar, balsamic glaze; salad dressings = ranch dressing, vinaigrette; meat substitutes = veggie burger, tofu
strips
"""

ROOTS = {
    "beauty": "Beauty & Personal Care", "electronics": "Electronics", "garden": "Home & Kitchen",
    "fashion": "Clothing, Shoes & Jewelry", "grocery": "Grocery & Gourmet Food",
}  # fmt: skip

# Attribute phrases by category and slot: "left words * right words" stands for every pair; the first are the commonest.
_PHRASES = {
    "beauty": {
        "plain": """
high salon * quality grade; easy quick * apply use carry clean; long * lasting wearing; paraben cruelty sulfate
alcohol oil fragrance dye silicone talc soap * free; travel pocket * size; non * toxic greasy drying; eco skin *
friendly; double soft * sided tipped; leak spill * proof; dermatologist clinically * tested proven
""",
        "with": """
coconut argan jojoba castor almond rosehip lavender olive * oil extract; hyaluronic salicylic glycolic * acid;
shea cocoa mango * butter; stainless carbon * steel; natural plant mineral * ingredients powder; rose black *
gold charcoal; bamboo wooden nylon * handle bristles; green white * tea clay
""",
        "for": """
sensitive dry oily mature dead * skin; dry damaged curly fine natural * hair; hair nail lash * growth repair
care; fine dark age * lines circles spots; nail eye * art makeup
""",
    },
    "electronics": {
        "plain": """
high ultra * speed definition resolution power; easy quick * install use setup release; plug hands * play free;
heavy light * duty weight; fast wireless * charging pairing; noise echo * cancelling reducing; dust water shock
* proof resistant; long extended * range life; energy space * saving; non * slip glare
""",
        "with": """
gold nickel chrome * plated; usb aux data * port hub; carbon tempered optical * fiber glass; aluminum zinc *
alloy shell; quad dual octa * core band channel; stereo surround hifi * sound; touch retina * screen; bluetooth
infrared * receiver remote; lithium alkaline * battery; silicone memory * pads foam
""",
        "for": """
home car outdoor * theater audio security; apple desktop smart * devices gaming home; video voice bird * calls
recording watching; night dual * vision use; wall desk * mounting
""",
    },
    "garden": {
        "plain": """
easy tool * assemble clean install care; machine hand * washable wash; super extra * soft wide; space energy *
saving; eco pet * friendly; mid late * century; button hand * tufted crafted; fully ready * assembled hang; high
low * density gloss profile; heavy light * duty filtering; white black gray * item finish; twin queen king *
size; non * slip shedding
""",
        "with": """
solid engineered reclaimed pine * wood; steel metal wood iron * frame legs base; storage drawer hidden * space
shelf; faux genuine * leather suede; tempered clear frosted * glass; brushed polished * nickel brass; soy bees *
wax; velvet linen cotton * fabric; memory gel * foam; natural antique * rattan bronze; remote pull * control
chain
""",
        "for": """
living dining guest powder * room; home small * office spaces; kids front * bedroom porch; birthday holiday
garden * party; narrow open * hallway shelving
""",
    },
    "fashion": {
        "plain": """
machine hand * wash washable; slim loose relaxed regular * fit; wash quick * cold dry; moisture sweat * wicking;
day all * comfort season; non anti * slip static; light heavy * weight; wide tight * leg; tummy ankle * control
support; water wrinkle wind * resistant; officially hand * licensed stitched; butt arch * lifting; open closed
round * toe; high low * waist rise
""",
        "with": """
long short cap * sleeve; rubber gum leather * sole outsole; elastic drawstring * waist closure; polyester cotton
nylon * spandex heather blend; memory ortholite * foam insole; button zipper lace * closure front; faux merino *
fur wool; ankle spaghetti * strap; contrast tie * color dye; crew scoop mock * neck; side cargo * pockets; high
chunky * heel
""",
        "for": """
daily everyday casual * wear; gym yoga * workout; teen young * girls boys; summer winter beach * vacation
outings; office evening * work party; cold hot * weather
""",
    },
    "grocery": {
        "plain": """
gluten dairy sugar nut soy grain * free; non * gmo dairy; low zero * sugar carb calorie sodium; high plant *
protein based fiber; keto vegan paleo kosher * friendly certified; ready easy * eat prepare; freeze sun * dried;
shelf individually * stable wrapped; usda certified * organic; hand small * crafted batch
""",
        "with": """
natural simple quality * ingredients flavors; artificial added * colors; real dried * fruit; sea pink * salt;
dark milk * chocolate; resealable recyclable * bag; cold stone * pressed ground; whole ancient * grain; organic
raw * honey; vitamin omega * d3 acids
""",
        "for": """
gift party * baskets trays; baby bridal * shower; lunch snack * boxes breaks; valentine special * day occasions;
busy early * mornings
""",
    },
}

# Words that fill titles, by category; those in the first line are nouns.
_FILLERS = {
    "beauty": (
        """
kit case pack brush comb cap bottle jar tube sponge powder mist applicator tin pouch drops vial peel lotion balm routine
glow shine volume moisture texture scent petals orchid citrus herb
""",
        "silky radiant hydrating smoothing nourishing professional mini vegan smooth lightweight daily deep",
    ),
    "electronics": (
        """
adapter cable bracket dock socket sensor module panel chip driver lens mount grip cradle buckle plug charger
connector switch antenna dongle console laptop printer camera microphone bundle kit hub lamp
""",
        "portable digital universal compatible rechargeable adjustable compact foldable slim magnetic smart",
    ),
    "garden": (
        """
shelf drawer panel rack hook cabinet cushion fabric frame leaf tray stand basket rod curtain tile vase pillow
lantern knob hinge oak walnut farmhouse cottage entryway bathroom kitchen patio balcony
""",
        "modern rustic vintage decorative industrial foldable sturdy cozy minimalist nordic floral geometric",
    ),
    "fashion": (
        """
collar cuff pocket hem zip lining stretch knit denim plaid stripe print blouse skirt vest belt shawl robe
street travel club holiday festival size fringe lace ruffle hood blazer bow
""",
        "casual elegant trendy lightweight breathable oversized vintage cropped solid sexy classic comfy",
    ),
    "grocery": (
        """
pack box jar pouch can bundle sampler tin bottle case carton bites mix blend sauce syrup powder flakes seeds
berry lemon vanilla caramel garlic pepper cheddar cinnamon ginger maple pumpkin
""",
        "crunchy savory sweet spicy smoky tangy gourmet premium roasted classic fresh creamy",
    ),
}

USES = {
    "beauty": "home spa;travel and gym;salon and home;a morning routine;gifts;women and men;every day",
    "electronics": "home and office;travel;a small studio;school and work;long trips;gamers;streaming",
    "garden": "a small apartment;a hallway;bedroom and study;holiday guests;a reading corner;family rooms",
    "fashion": "work and travel;weekend trips;parties;walking and hiking;school days;date nights;home",
    "grocery": "lunch at work;movie nights;family dinners;hiking;a quick breakfast;sharing;the pantry",
}


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";"))


_BASE_COLORS = _list("black;white;red;blue;navy;green;gray;brown;beige;pink;purple;yellow;orange;teal;khaki;burgundy")
_SHADES = _list("light;dark;deep;pale;bright;matte;soft;warm")
COLORS = _BASE_COLORS + tuple(f"{shade} {color}" for shade in _SHADES for color in _BASE_COLORS)
CLOTHING_SIZES = _list("x-small;small;medium;large;x-large;xx-large;3x-large;4x-large;5x-large")
SHOE_SIZES = tuple(f"{size / 2:g}" for size in range(10, 29))
DIMENSIONS = tuple(f"{width} x {height} inch" for width in range(12, 84, 8) for height in (18, 24, 36, 60, 90))
LENGTHS = tuple(f"{length} feet" for length in (1, 3, 6, 10, 15, 25, 50)) + tuple(f"{2**n} gb" for n in range(4, 12))
PACKS = tuple(f"{ounces} ounce (pack of {count})" for ounces in (1.7, 4, 8, 12, 16, 32) for count in (1, 2, 3, 6, 12))
STYLES = _list("basic kit;deluxe kit;with remote;without remote;left side;right side;wall mount;single;pair")
FITS = _list("men;women;youth;big and tall")
SCENTS = _list("lavender;rose;vanilla bean;citrus;sandalwood;ocean;unscented;peppermint;jasmine;cedar")
_TASTES = _list("dark;sea;honey;smoky;wild;sweet;hot;lemon"), _list("chocolate;salt;mustard;chili;berry;almond;ginger")
FLAVORS = tuple(f"{first} {second}" for first in _TASTES[0] for second in _TASTES[1])

# Sentences of bullets and descriptions: {head} is the product, {noun} and {word} its category's fillers, {use} what it
# is for.
_SENTENCES = """
The {head} comes with one {noun} and a short guide that shows how to set it up.
We chose the {word} {noun} since it keeps its shape after many months.
Use it for {use} whenever you need something {word} and simple.
Each {noun} is checked by hand before it leaves our workshop.
The {word} {noun} feels right from the first day and is easy to look after.
If the {head} does not suit you, write to us and we answer within one day.
Please measure first, since the {noun} may differ a little from the picture.
The {word} gift for friends who like {use}.
It pairs well with any {noun} that you already own.
Inside the box are the {head}, one {noun} and a card with tips.
The {noun} was redesigned this year and is now more {word} than before.
Store it in a dry place and wipe the {noun} from time to time.
Made in small runs, so that every {noun} gets the care it deserves.
With its {word} look the {head} fits {use} and quiet evenings alike.
"""
SENTENCES = tuple(_SENTENCES.strip().splitlines())
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeio"  # of made-up brands


@dataclass(frozen=True)
class Type:
    """A product type: what goals call it, what sellers call it, and where it stands in the shop."""

    query: str
    heads: tuple[str, ...]
    category: str
    department: str
    section: str


def _types() -> list[Type]:
    made = []
    for block in _TYPES.split("@ ")[1:]:
        head, _, lines = block.partition("\n")
        category, department, section = head.split(" | ")
        for entry in " ".join(lines.split()).split("; "):
            query, heads = entry.split(" = ")
            made.append(Type(query, tuple(heads.split(", ")), category, department, section))
    return made


def _phrases(text: str) -> list[str]:
    """All pairs of a slot's groups, the groups' first words first."""
    pairs = []
    for group in " ".join(text.split()).split("; "):
        left, right = (part.split() for part in group.split(" * "))
        pairs += sorted((i + k, f"{one} {other}") for i, one in enumerate(left) for k, other in enumerate(right))
    return [phrase for _, phrase in sorted(pairs, key=lambda pair: pair[0])]


TYPES = _types()
PHRASES = {category: {slot: _phrases(text) for slot, text in slots.items()} for category, slots in _PHRASES.items()}
FILLERS = {category: (nouns.split(), words.split()) for category, (nouns, words) in _FILLERS.items()}
